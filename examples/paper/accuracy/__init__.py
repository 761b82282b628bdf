"""The accuracy experiments: TREC, MNIST and CIFAR-10, through the protocol and in the clear.

`experiments` says what there is, with all settings; `computing` runs a cell; `rounds` compares the protocol with the
clear, round for round; `trec` and `images` read the data, and `questions` and `pictures` are the clients.
"""
