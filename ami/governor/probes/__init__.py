"""What the machine, the container, the GPU and each process have left."""
