"""What a training gradient costs: time, FLOPs, memory. Behind `pathgrad bench`."""
