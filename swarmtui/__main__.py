from swarmtui.cli import main

main()
