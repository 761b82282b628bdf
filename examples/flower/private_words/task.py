"""The model and the data: texts of private words, and whether they are about the sea or about the mountains."""

import numpy as np

WORDS, WIDTH, SELECT = 1_000, 8, 320
TEXTS, LENGTH = 160, 12


class Net:
    """A bag of words: the mean of the words' vectors, and a layer of two outputs."""

    def __init__(self):
        rng = np.random.default_rng(0)
        self.embedding = rng.normal(0, 0.1, (WORDS, WIDTH)).astype(np.float32)
        self.weight = rng.normal(0, 0.1, (WIDTH, 2)).astype(np.float32)
        self.bias = np.zeros(2, np.float32)

    def state_dict(self):
        """By name, the tensors."""
        return {"embedding": self.embedding, "weight": self.weight, "bias": self.bias}

    def load_state_dict(self, state):
        """Take the tensors of another model."""
        self.embedding, self.weight, self.bias = (np.array(state[name]) for name in self.state_dict())

    def scores(self, texts):
        """By text, two scores."""
        return self.embedding[texts].mean(axis=1) @ self.weight + self.bias


def load_data(partition):
    """The texts of one node, and what they are about; partition -1 has the texts that nobody trains on."""
    rng = np.random.default_rng(100 + partition)
    vocabulary = np.sort(np.random.default_rng(200 + partition).choice(WORDS, SELECT - 20, replace=False))
    if partition < 0:
        vocabulary = np.arange(WORDS)
    labels = rng.integers(0, 2, TEXTS if partition >= 0 else 1_000)
    about_sea = vocabulary[vocabulary % 2 == 0]
    about_mountains = vocabulary[vocabulary % 2 == 1]
    mixed = rng.random((len(labels), LENGTH)) < 0.3
    texts = np.where(
        mixed ^ (labels[:, None] == 1),
        rng.choice(about_mountains, (len(labels), LENGTH)),
        rng.choice(about_sea, (len(labels), LENGTH)),
    )
    return texts, labels


def train(net, texts, labels, epochs, rate=2.0):
    """Some epochs of gradient descent in batches; returns the mean loss of the last one."""
    for _ in range(epochs):
        losses = []
        for start in range(0, len(texts), 16):
            batch, truth = texts[start : start + 16], labels[start : start + 16]
            means = net.embedding[batch].mean(axis=1)
            scores = means @ net.weight + net.bias
            chances = np.exp(scores - scores.max(axis=1, keepdims=True))
            chances /= chances.sum(axis=1, keepdims=True)
            losses.append(-np.log(chances[np.arange(len(truth)), truth]).mean())
            gradient = (chances - np.eye(2, dtype=np.float32)[truth]) / len(truth)
            spread = np.repeat((gradient @ net.weight.T)[:, None] / batch.shape[1], batch.shape[1], axis=1)
            net.weight -= rate * means.T @ gradient
            net.bias -= rate * gradient.sum(axis=0)
            np.subtract.at(net.embedding, batch, (10 * rate * spread).astype(np.float32))
    return float(np.mean(losses))


def test(net, texts, labels):
    """The share of texts whose subject is found."""
    return float((net.scores(texts).argmax(axis=1) == labels).mean())
