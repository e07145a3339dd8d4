# python train.py config/tiny.py: a model for a CPU
layers = 2
width = 64
block = 32
batch = 8
steps = 20
