"""What panels show: frames and their history turned into small frozen views, every number already written out."""
