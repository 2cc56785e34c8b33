from swarmtui.conductor.process import main

main()
