"""Models on disk: there and back, and every way a folder can be wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from tests.drawn import random
from tests.nn.molecules import MOLECULES, pack
from tests.nn.plain_twin import BOTH_DTYPES, SPECTRA, state_of

from specformer import GraphSpecformer, Specformer, reference
from specformer.errors import ConfigError, RunError
from specformer.nn.pretrained import CARD, CONFIG, WEIGHTS, Pretrained, saved_arguments


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Specformer(3, 8, 4, sharing="small").save_pretrained(tmp_path)
    return tmp_path


class Other(Pretrained):
    """Some other model."""

    def __init__(self, width: int = 2) -> None:
        super().__init__()
        self.config = {"width": width}
        self.layer = torch.nn.Linear(width, width)


@pytest.mark.parametrize("dtype", BOTH_DTYPES)
@pytest.mark.parametrize(
    "options",
    [
        {"sharing": "small", "num_layers": 3},
        {"sharing": "large", "decoder": "heads", "bases": "ffn", "init_std": 0.01},
        {"space": "hidden", "norm": "batch", "transform": True, "transformer_dropout": 0.5},
    ],
)
def test_round_trip(tmp_path: Path, options, dtype: torch.dtype) -> None:
    model = Specformer(3, 8, 4, **options).to(dtype)
    spectrum, x = SPECTRA["star"].to(dtype=dtype), random(7, 3, dtype=dtype)
    model(x, spectrum)  # moves the running statistics of a batch norm
    model.eval()
    model.save_pretrained(tmp_path / "new" / "folder")
    again = Specformer.from_pretrained(str(tmp_path / "new" / "folder"))
    assert not again.training
    assert again.config == model.config
    assert torch.equal(again(x, spectrum), model(x, spectrum))
    assert sum(p.numel() for p in again.parameters()) == sum(p.numel() for p in model.parameters())
    assert {path.name for path in (tmp_path / "new" / "folder").iterdir()} == {
        CONFIG,
        WEIGHTS,
        CARD,
    }


def test_a_model_for_other_targets_keeps_all_but_its_last_layer(tmp_path: Path) -> None:
    model = Specformer(3, 8, 4, space="hidden", norm="batch").double()
    spectrum, x = SPECTRA["star"].to(dtype=torch.float64), random(7, 3, dtype=torch.float64)
    model(x, spectrum)
    model.eval().save_pretrained(tmp_path)
    other = Specformer.from_pretrained(tmp_path, out_channels=2, feature_dropout=0.5)
    assert other.config == {**model.config, "out_channels": 2, "feature_dropout": 0.5}
    assert other(x, spectrum).shape == (7, 2)
    other.readout = model.readout
    assert torch.equal(other(x, spectrum), model(x, spectrum))
    # Of a last layer that still fits, nothing is lost.
    same = Specformer.from_pretrained(tmp_path, out_channels=4, transformer_dropout=0.1)
    assert torch.equal(same(x, spectrum), model(x, spectrum))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"hidden_channels": 16}, r"^hidden_channels=16: only the last .* mismatch for lift\.weig"),
        (
            {"space": "output", "num_layers": 2},
            r"^space='output', num_layers=2: only .*convs\.0\.b",
        ),
        ({"num_layers": 1}, r"^num_layers=1: only .*convs\.1\.bases\.weight"),
        ({"sharing": "small"}, r"^sharing='small': .* no place of its own for convs\.0\.bases\.w"),
        ({"sharing": "odd"}, r"^sharing='odd'"),
        ({"width": 3}, r"^width=3: .*unexpected keyword argument 'width'"),
    ],
    ids=lambda case: next(iter(case)) if isinstance(case, dict) else "",
)
def test_changes_that_the_weights_do_not_fit_are_refused(tmp_path: Path, changes, told) -> None:
    model = Specformer(3, 8, 4, space="hidden")
    with torch.no_grad():
        model.convs[1].bases.weight.zero_()
    model.save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=told):
        Specformer.from_pretrained(tmp_path, **changes)


def test_numbers_of_numpy_and_torch_are_saved_as_plain_ones(tmp_path: Path) -> None:
    classes = np.array([0, 3, 1]).max() + 1
    model = Specformer(torch.tensor(3), 8, classes, feature_dropout=np.float32(0.5))
    model.save_pretrained(tmp_path)
    again = Specformer.from_pretrained(tmp_path)
    assert again.config == Specformer(3, 8, 4, feature_dropout=0.5).config
    assert torch.equal(again.lift.weight, model.lift.weight)


def test_saving_again_replaces(folder: Path) -> None:
    model = Specformer(5, 16, 2)
    model.save_pretrained(folder)
    again = Specformer.from_pretrained(folder)
    assert torch.equal(again.lift.weight, model.lift.weight)


def test_another_model_round_trips_too(tmp_path: Path) -> None:
    other = Other(3)
    other.save_pretrained(tmp_path)
    assert torch.equal(Other.from_pretrained(tmp_path).layer.weight, other.layer.weight)


class Scaled(Specformer):
    """A subclass with an argument of its own that no weight tells of."""

    def __init__(self, in_channels: int, *, scale: float = 1.0, **options) -> None:
        super().__init__(in_channels, **options)
        self.config["scale"] = self.scale = scale

    def forward(self, x, spectrum, landmarks=None) -> torch.Tensor:
        return self.scale * super().forward(x, spectrum, landmarks)


def test_a_subclass_keeps_its_own_arguments(tmp_path: Path) -> None:
    model = Scaled(3, hidden_channels=8, out_channels=4, scale=3.0).eval()
    model.save_pretrained(tmp_path)
    x, spectrum = random(7, 3, dtype=torch.float32), SPECTRA["star"].to(dtype=torch.float32)
    assert torch.equal(Scaled.from_pretrained(tmp_path)(x, spectrum), model(x, spectrum))


class Forgetful(Specformer):
    def __init__(self, in_channels: int, scale: float = 1.0, **options) -> None:
        super().__init__(in_channels, **options)


class Fixed(Specformer):
    def __init__(self, in_channels: int) -> None:
        super().__init__(in_channels, hidden_channels=8, out_channels=4)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Forgetful(3, 2.0, hidden_channels=8, out_channels=4), "lacks the argument 'scale'"),
        (Fixed(3), "has 'hidden_channels', which its constructor does not take"),
    ],
)
def test_what_could_not_be_built_again_is_not_saved(tmp_path: Path, model, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        model.save_pretrained(tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_config_is_plain_json(folder: Path) -> None:
    config = json.loads((folder / CONFIG).read_text())
    assert config["model"] == "Specformer"
    assert config["hidden_channels"] == 8


@pytest.mark.parametrize("name", [CONFIG, WEIGHTS])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(RunError, match=rf"no saved model \({name} is missing\)"):
        Specformer.from_pretrained(folder)
    with pytest.raises(RunError, match="no saved model"):
        Specformer.from_pretrained(folder / "absent")


@pytest.mark.parametrize("content", [b"", b"{", b"[1, 2]", b'"text"', b"\xff\xfe"])
def test_a_damaged_config_is_refused(folder: Path, content: bytes) -> None:
    (folder / CONFIG).write_bytes(content)
    with pytest.raises(RunError, match="damaged model"):
        Specformer.from_pretrained(folder)


@pytest.mark.parametrize("keep", [0, 4, 100, -1])
def test_truncated_weights_are_refused(folder: Path, keep: int) -> None:
    whole = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(whole[:keep])
    with pytest.raises(RunError, match="damaged model"):
        Specformer.from_pretrained(folder)


def test_altered_weights_are_refused(folder: Path) -> None:
    content = bytearray((folder / WEIGHTS).read_bytes())
    content[-5] ^= 1
    (folder / WEIGHTS).write_bytes(bytes(content))
    with pytest.raises(RunError, match="checksum differs"):
        Specformer.from_pretrained(folder)


@pytest.mark.parametrize(
    "change", [{"hidden_channels": 16}, {"epsilon": 1.0}, {"sharing": "odd"}, {"new": 1}]
)
def test_an_altered_config_is_refused(folder: Path, change) -> None:
    config = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps({**config, **change}))
    with pytest.raises(RunError, match="checksum differs"):
        Specformer.from_pretrained(folder)


def test_another_class_is_named(folder: Path) -> None:
    with pytest.raises(RunError, match="holds a Specformer, not a Other"):
        Other.from_pretrained(folder)


def test_weights_that_do_not_fit_their_config_are_refused(tmp_path: Path) -> None:
    other = Other(2)
    other.config = {"width": 3}  # wrong from the start, so the checksum holds
    other.save_pretrained(tmp_path)
    with pytest.raises(RunError, match=r"weights and config\.json do not match"):
        Other.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("claim", "why"),
    [
        ({"hidden_channels": 9_000}, r"should have the shape \[.*9000"),  # 324 MB for each map
        ({"num_layers": 10**9}, "num_layers=1000000000 is too large for .* weights"),
    ],
)
def test_claims_are_checked_before_a_model_is_built(tmp_path: Path, claim, why: str) -> None:
    small = Specformer(3, 8, 2, num_layers=1)
    small.config |= claim  # with a checksum that is right
    small.save_pretrained(tmp_path)
    with pytest.raises(RunError, match=f"weights and config.json do not match .*{why}"):
        Specformer.from_pretrained(tmp_path)


def test_an_argument_that_is_no_longer_taken_is_refused(tmp_path: Path) -> None:
    class Earlier(Pretrained):
        def __init__(self, height: int = 2) -> None:
            super().__init__()
            self.config = {"height": height}
            self.layer = torch.nn.Linear(height, height)

    Earlier.__name__ = "Other"
    Earlier().save_pretrained(tmp_path)
    with pytest.raises(RunError, match=r"weights and config\.json do not match"):
        Other.from_pretrained(tmp_path)


def test_a_config_no_longer_accepted_is_refused(tmp_path: Path) -> None:
    model = Specformer(3, 8, 4)
    model.config = {**model.config, "sharing": "odd"}
    model.save_pretrained(tmp_path)
    with pytest.raises(RunError, match=r"do not match \(sharing='odd'"):
        Specformer.from_pretrained(tmp_path)


# --- models that an earlier version saved -------------------------------------------------------

SAVED = Path(__file__).parent / "saved"


def test_a_node_model_of_an_earlier_version_loads_and_computes_the_equations() -> None:
    """It was saved with an argument that is gone; names of weights must stay as they were."""
    model = Specformer.from_pretrained(SAVED / "specformer").double()
    spectrum, x = SPECTRA["weighted"], random(SPECTRA["weighted"].num_nodes, 3)
    given = (model.config, x, spectrum.eigenvalues, spectrum.eigenvectors)
    expected = reference.specformer(state_of(model), *given)
    torch.testing.assert_close(model(x, spectrum), expected)


def test_a_graph_model_of_an_earlier_version_loads_and_computes_the_equations() -> None:
    model = GraphSpecformer.from_pretrained(SAVED / "graph_specformer").double()
    expected = reference.graph_specformer(state_of(model), model.config, MOLECULES)
    torch.testing.assert_close(model(pack(MOLECULES)), expected)


def test_an_argument_that_is_gone_may_not_have_had_an_effect(folder: Path) -> None:
    saved = Specformer.from_pretrained(folder)
    saved.config = {**saved.config, "filter_activation": "relu"}
    with pytest.raises(ConfigError, match="has 'filter_activation', which its"):
        saved.save_pretrained(folder)
    with pytest.raises(ConfigError, match="filter_activation='relu' is no longer supported"):
        saved_arguments(saved.config, Specformer.retired)


def test_the_model_card_runs_and_stays(tmp_path: Path) -> None:
    """Its code loads the model; its front matter is YAML; a user's own words are kept."""
    model = Specformer(2, 8, 3)
    model.save_pretrained(tmp_path)
    card = (tmp_path / CARD).read_text(encoding="utf-8")
    _, front, text = card.split("---\n", 2)
    assert yaml.safe_load(front)["library_name"] == "specformer"
    count = sum(parameter.numel() for parameter in model.parameters())
    assert f"{count:,} parameters in float32" in text
    code = text.split("```python\n")[1].split("```")[0]
    found: dict[str, Any] = {}
    exec(code.replace("path/to/this/folder", str(tmp_path)), found)
    assert found["model"].config == model.config
    (tmp_path / CARD).write_text("mine", encoding="utf-8")
    model.save_pretrained(tmp_path)
    assert (tmp_path / CARD).read_text(encoding="utf-8") == "mine"
