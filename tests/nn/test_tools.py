"""Both models in the hands of PyTorch's and PyG's tools."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils import prune
from torch_geometric.data import Batch, Data
from torch_geometric.explain import Explainer, GNNExplainer, ModelConfig

import specformer as sf
from specformer.datasets import pack
from specformer.errors import ConfigError

RING = torch.tensor([[0, 1, 2, 3, 4, 1, 2, 3, 4, 0], [1, 2, 3, 4, 0, 0, 1, 2, 3, 4]])
PAIR = torch.tensor([[0, 1], [1, 0]])
SPECTRUM = sf.decompose(RING)
GRAPHS = [
    sf.AddSpectrum()(Data(torch.arange(5.0).sin().view(5, 1), RING)),
    sf.AddSpectrum()(Data(torch.ones(2, 1), PAIR)),
]

#: A model without dropout, and its arguments.
Case = tuple[nn.Module, tuple[Any, ...]]


def of_nodes() -> Case:
    torch.manual_seed(0)
    off = dict.fromkeys(("transformer_dropout", "feature_dropout", "propagation_dropout"), 0.0)
    return sf.Specformer(3, 8, 2, num_heads=2, **off), (torch.randn(5, 3), SPECTRUM)


def of_graphs() -> Case:
    torch.manual_seed(0)
    model = sf.GraphSpecformer([1], [1], 8, 2, 2, 2, in_channels=1, bases_norm="batch")
    return model, (pack(Batch.from_data_list(GRAPHS)),)


def gradients(model: nn.Module) -> list[Tensor]:
    found = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    model.zero_grad()
    return found


@pytest.mark.parametrize("case", [of_nodes, of_graphs])
def test_compiled_as_one_graph_forward_and_backward(case: Callable[[], Case]) -> None:
    model, arguments = case()
    torch.compiler.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    expected = model(*arguments)
    expected.square().sum().backward()
    wanted = gradients(model)
    out = compiled(*arguments)
    torch.testing.assert_close(out, expected)
    out.square().sum().backward()
    for one, other in zip(gradients(model), wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", [of_nodes, of_graphs])
def test_copies_and_foreign_parameters(case: Callable[[], Case]) -> None:
    model, arguments = case()
    model.eval()
    expected = model(*arguments)
    assert torch.equal(copy.deepcopy(model)(*arguments), expected)
    halves = {name: tensor / 2 for name, tensor in model.named_parameters()}
    out = functional_call(model, halves, arguments)
    model.load_state_dict(halves, strict=False)
    assert not torch.equal(out, expected)
    torch.testing.assert_close(out, model(*arguments))


@pytest.mark.parametrize("training", [False, True])
def test_torch_func_differentiates_the_node_model(training: bool) -> None:
    model, x, spectrum = sf.Specformer(3, 8, 2, num_heads=2), torch.randn(5, 3), SPECTRUM
    model.train(training)
    parameters = dict(model.named_parameters())

    def loss(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        torch.manual_seed(0)  # the same is dropped each time
        return functional_call(model, parameters, (x, spectrum)).square().mean()

    found = torch.func.grad(loss, argnums=(0, 1))(parameters, x)
    x = x.clone().requires_grad_()
    loss(parameters, x).backward()
    torch.testing.assert_close(found[1], x.grad)
    for name, parameter in parameters.items():
        torch.testing.assert_close(found[0][name], parameter.grad)
    if not training:
        jacobian = torch.func.jacrev(lambda x: model(x, spectrum)[0])(x.detach())
        expected = torch.autograd.functional.jacobian(lambda x: model(x, spectrum)[0], x.detach())
        torch.testing.assert_close(jacobian, expected)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_an_ensemble_under_vmap_is_each_model_alone() -> None:
    """PyTorch's recipe also hands over buffers: nothing made of them may outlive the call."""
    models = [sf.Specformer(3, 8, 2, num_heads=2).eval() for _ in range(3)]
    x = torch.randn(5, 3)
    state = stack_module_state(models)
    together = vmap(lambda own: functional_call(models[0], own, (x, SPECTRUM)))(state)
    expected = torch.stack([model(x, SPECTRUM) for model in models])
    torch.testing.assert_close(together, expected)


def test_a_step_of_descent_can_be_differentiated() -> None:
    """As in meta-learning, by the loss after the step; against a finite difference."""
    model, x = of_nodes()[0].double(), torch.randn(5, 3, dtype=torch.float64)
    own = dict(model.named_parameters())
    spectrum = SPECTRUM.to(dtype=torch.float64)

    def after_a_step(x: Tensor) -> Tensor:
        loss = functional_call(model, own, (x, spectrum)).square().mean()
        steps = torch.autograd.grad(loss, list(own.values()), create_graph=True)
        pairs = zip(own.items(), steps, strict=True)
        moved = {name: value - 0.1 * step for (name, value), step in pairs}
        return functional_call(model, moved, (x, spectrum)).square().mean()

    with sdpa_kernel(SDPBackend.MATH):
        assert torch.autograd.gradcheck(after_a_step, x.requires_grad_())


@pytest.mark.parametrize("case", [of_nodes, of_graphs])
def test_autocast_stays_close(case: Callable[[], Case]) -> None:
    model, arguments = case()
    model.eval()
    with torch.autocast("cpu", torch.bfloat16):
        out = model(*arguments)
    torch.testing.assert_close(out.float(), model(*arguments), rtol=0.1, atol=0.05)


@pytest.mark.parametrize("case", [of_nodes, of_graphs])
def test_tools_find_every_linear_layer(case: Callable[[], Case]) -> None:
    """What LoRA, quantisation and counters of parameters look for."""
    model, _ = case()
    matrices = {
        name for name, parameter in model.named_parameters()
        if parameter.dim() == 2 and "weight" in name
    }  # fmt: skip
    linear = {f"{name}.weight" for name, m in model.named_modules() if isinstance(m, nn.Linear)}
    rest = {name.rpartition(".")[0].split(".")[-1] for name in matrices - linear}
    assert rest <= {"bases", "atoms", "bonds"}
    assert len(linear) > 8


class ByEdges(nn.Module):
    """The form of docs/how-to/pyg.md: PyG explains models of ``x`` and ``edge_index``."""

    def __init__(self, model: sf.Specformer, spectrum: sf.Spectrum) -> None:
        super().__init__()
        self.model, self.spectrum = model, spectrum

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.model(x, self.spectrum)


class ByBatch(nn.Module):
    def __init__(self, model: sf.GraphSpecformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, edge_index: Tensor, batch: Batch) -> Tensor:
        return self.model(batch.clone().update({"x": x}))


def explainer(model: nn.Module, level: str) -> Explainer:
    return Explainer(
        model,
        GNNExplainer(epochs=100, lr=0.1),
        explanation_type="model",
        node_mask_type="attributes",
        model_config=ModelConfig("regression", level),
    )


def test_pyg_explains_a_node_model() -> None:
    """Of two features the model reads one, and the mask says which."""
    torch.manual_seed(0)
    model = sf.Specformer(2, 8, 1, num_heads=2).eval()
    with torch.no_grad():
        model.lift.weight[:, 1] = 0.0
    found = explainer(ByEdges(model, SPECTRUM), "node")(torch.rand(5, 2) + 0.5, RING)
    mask = found.node_mask
    assert mask.shape == (5, 2)
    assert mask[:, 0].mean() > 2 * mask[:, 1].mean()


def test_pyg_explains_a_graph_model() -> None:
    torch.manual_seed(0)
    model = sf.GraphSpecformer([1], [1], 8, 1, 1, 2, in_channels=2).eval()
    with torch.no_grad():
        model.atoms.numbers.weight[:, 1] = 0.0
    graphs = [sf.AddSpectrum()(Data(torch.rand(5, 2) + 0.5, RING)) for _ in range(2)]
    batch = Batch.from_data_list(graphs)
    found = explainer(ByBatch(model), "graph")(batch.x, batch.edge_index, batch=batch)
    assert found.node_mask[:, 0].mean() > 2 * found.node_mask[:, 1].mean()


class LowRank(nn.Module):
    """An adapter as PEFT's: it has its base's weight, and computes more than that."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, 2, bias=False)
        self.up = nn.Linear(2, base.out_features, bias=False)

    @property
    def weight(self) -> Tensor:
        return self.base.weight

    @property
    def bias(self) -> Tensor | None:
        return self.base.bias

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.up(self.down(x))


def with_adapters(model: nn.Module, *names: str) -> nn.Module:
    adapted = copy.deepcopy(model)
    for name, module in list(adapted.named_modules()):
        owner, _, leaf = name.rpartition(".")
        if leaf in names and isinstance(module, nn.Linear):
            setattr(adapted.get_submodule(owner), leaf, LowRank(module))
    return adapted


ADAPTED = ("query", "key", "value", "out", "transform", "lift", "readout", "skip", "signal")


def of_blocks() -> Case:
    torch.manual_seed(0)
    model = sf.Specformer(3, 8, 2, num_heads=2, form="deep", transformer_dropout=0.0)
    return model, (torch.randn(5, 3), SPECTRUM)


@pytest.mark.parametrize("case", [of_nodes, of_blocks, of_graphs])
def test_adapters_have_their_effect(case: Callable[[], Case]) -> None:
    """As their products merged into the weights."""
    model, arguments = case()
    adapted = with_adapters(model.eval(), *ADAPTED)
    with torch.no_grad():
        for name, module in adapted.named_modules():
            if isinstance(module, LowRank):
                model.get_submodule(name).weight += module.up.weight @ module.down.weight
    out = adapted(*arguments)
    torch.testing.assert_close(out, model(*arguments))
    out.square().sum().backward()
    adapters = [m for m in adapted.modules() if isinstance(m, LowRank)]
    assert len(adapters) > 4
    assert all(m.up.weight.grad is not None for m in adapters)


@pytest.mark.parametrize("name", ["message", "first"])
def test_adapters_that_would_have_no_effect_are_refused(name: str) -> None:
    model, arguments = of_graphs()
    with pytest.raises(ConfigError, match="a LowRank in place of a linear layer would have no"):
        with_adapters(model, name)(*arguments)


def test_hooks_of_convolutions_are_called() -> None:
    """Without hooks, both are one filter, and the signal between them is never computed."""
    model, arguments = of_nodes()
    expected, seen = model(*arguments), []
    for part in (model.convs[0].bases, model.convs[1]):
        part.register_forward_hook(lambda *call: seen.append(call[-1]))
    torch.testing.assert_close(model(*arguments), expected)
    assert len(seen) == 2
    torch.testing.assert_close(seen[1], expected)


@pytest.mark.parametrize("case", [of_nodes, of_graphs])
def test_hooks_of_filters_are_called(case: Callable[[], Case]) -> None:
    model, arguments = case()
    seen: list[Tensor] = []
    for filt in model.filters:
        filt.register_forward_hook(lambda *call: seen.append(call[-1]))
    model.eval()(*arguments)
    assert len(seen) == len(model.filters)
    assert torch.equal(seen[0], model.responses(arguments[-1])[0])


def test_hooks_of_attention_are_called() -> None:
    """Among them those of PyTorch's pruning, which make the weight anew at every call."""
    model, arguments = of_nodes()
    query = model.filters[0].encoder.blocks[0].attention.query
    seen: list[Tensor] = []
    query.register_forward_hook(lambda *call: seen.append(call[-1]))
    prune.l1_unstructured(query, "weight", 0.5)
    for _ in range(2):
        model(*arguments).square().sum().backward()  # a stale weight would have lost its graph
    assert [out.shape[-1] for out in seen] == [8, 8]
