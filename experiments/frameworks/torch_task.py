"""What all frameworks on PyTorch are given: the same images, split alike, and
the same network with the same first model."""

import threading
from functools import cache, cached_property

import numpy as np
import torch
from torch import Tensor, nn

from experiments.frameworks.task import Task


class Network(nn.Sequential):
    """A network that counts what it is trained on, in this process."""

    samples = steps = 0
    _counting = threading.Lock()

    def forward(self, images: Tensor) -> Tensor:
        if self.training:
            with Network._counting:
                Network.samples += len(images)
                Network.steps += 1
        return super().forward(images)


class TorchTask(Task):
    """A task with its data as tensors, images [N, C, H, W] of floats from 0 to 1."""

    def __init__(self, path: str):
        super().__init__(path)
        torch.manual_seed(self.seed)
        with np.load(self.data) as arrays:
            self._arrays = dict(arrays)

    def shard(self, client: int) -> tuple[Tensor, Tensor]:
        """Images and labels of a client."""
        own = self._arrays["owned"][client][: self._arrays["sizes"][client]]
        return self._images("images")[own], self._labels("labels")[own]

    @cached_property
    def test(self) -> tuple[Tensor, Tensor]:
        """The test images and labels as tensors."""
        return self._images("test_images"), self._labels("test_labels")

    def _images(self, name: str) -> Tensor:
        pixels = torch.from_numpy(self._arrays[name]).permute(0, 3, 1, 2)
        scale = 1 if pixels.is_floating_point() else 255
        return pixels.float().contiguous() / scale

    def _labels(self, name: str) -> Tensor:
        return torch.from_numpy(self._arrays[name]).long()

    def network(self) -> Network:
        """The network with the first model."""
        height, width, channels = self._arrays["images"].shape[1:]
        layers: list[nn.Module] = []
        for features in self.channels:
            layers += [nn.Conv2d(channels, features, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
            channels, height, width = features, height // 2, width // 2
        layers.append(nn.Flatten())
        inputs = channels * height * width
        for features in self.hidden:
            layers += [nn.Linear(inputs, features), nn.ReLU()]
            inputs = features
        network = Network(*layers, nn.Linear(inputs, self.classes))
        for i, parameter in enumerate(network.parameters()):
            parameter.data = torch.from_numpy(self._arrays[f"start_{i}"]).clone()
        return network

    @torch.no_grad()
    def accuracy(self, network: nn.Module) -> float:
        """The accuracy of a network on the test images."""
        network.eval()
        images, labels = self.test
        guesses = torch.cat([network(some).argmax(dim=1) for some in images.split(500)])
        return (guesses == labels).float().mean().item()

    def end_counted_round(self) -> None:
        """End a round whose training was counted in this process."""
        self.end_round(Network.samples, Network.steps)


@cache
def torch_task(path: str) -> TorchTask:
    """The task, read once in a process."""
    return TorchTask(path)
