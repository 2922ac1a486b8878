r"""Learning filters from signals: every image and filter a model of its own, all trained as one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from specformer.errors import ConfigError
from specformer.nn import Specformer, SpectralFilter
from specformer.nn.conv.node_conv import LinearBases
from specformer.nn.filter import JointDecoder
from specformer.nn.layers.linear import Linear
from specformer.nn.tokens import encoded
from specformer.spectrum import Keys, Spectrum, Tokens
from specformer.training.engine.capture import Repeated, differentiate
from specformer.training.engine.rewind import Rewind, first_lost, layer_name
from specformer.training.engine.stacking import stack
from specformer.training.optim.early_stopping import EarlyStopping, refuse_lost
from specformer.training.optim.schedule import Schedule, moments

#: Losses are read back, and stopped runs noticed, once in this many epochs.
_READ_EVERY = 100


@dataclass(frozen=True)
class SignalTask:
    r"""Recover :math:`y = U\,\mathrm{diag}(g)\,U^\top x` from x, for every signal and every g.

    Runs are signal-major: run ``i * filters + j`` has signal i and filter j.

    Shapes: signals ``[signals, n]``, responses ``[filters, p]`` at the distinct eigenvalues, mask
    ``[n]``: where errors count.
    """

    spectrum: Spectrum
    signals: Tensor
    responses: Tensor
    mask: Tensor

    @property
    def num_filters(self) -> int:
        return len(self.responses)

    @property
    def runs(self) -> int:
        return len(self.signals) * self.num_filters

    def coefficients(self) -> Tensor:
        """The signals in the spectral domain, ``[signals, q]``."""
        return self.spectrum.gft(self.signals.mT).mT

    def inputs(self) -> Tensor:
        """The input of each run, ``[runs, n, 1]``."""
        return self.signals.repeat_interleave(self.num_filters, dim=0).unsqueeze(-1)

    def apply(self, gains: Tensor) -> Tensor:
        """Filter each run's signal by gains at the distinct eigenvalues.

        ``[runs, p]`` to ``[runs, n]``.
        """
        spread = gains.index_select(-1, self.spectrum.distinct.index)
        filtered = spread * self.coefficients().repeat_interleave(self.num_filters, dim=0)
        return self.spectrum.igft(filtered.mT).mT

    def targets(self) -> Tensor:
        """The output that each run should reach, ``[runs, n]``."""
        return self.apply(self.responses.repeat(len(self.signals), 1))


@dataclass(frozen=True)
class SignalFit:
    """The outcome of all runs of one model on a task.

    Outputs ``[runs, n]``, curves ``[epochs, runs]`` (NaN once a run has stopped), the rest
    ``[runs]``; ``layers`` name the first layer of each run that was not finite, if there was one.
    """

    task: SignalTask
    model: nn.Module
    output: Tensor
    sse: Tensor
    r2: Tensor
    best_epoch: Tensor
    epochs: Tensor
    curves: Tensor
    layers: Sequence[str]


def fit_signals(
    models: Sequence[nn.Module],
    task: SignalTask,
    operator: object,
    schedule: Schedule,
    *,
    landmarks: int | None = None,
    solve_readout: bool = False,
    on_progress: Callable[[int, float], None] | None = None,
) -> SignalFit:
    """Train one model per run, all at once, and measure each at its lowest loss.

    Args:
        models: one per run, of one shape.
        task: signals and filters.
        operator: what the models take beside the signal: the spectrum, or a ``Propagation``.
        schedule: epochs, patience and learning rates.
        landmarks: for Specformer, train with this many attention keys; the final measurement is
            always exact.
        solve_readout: for Specformer, variable projection instead of learning the read-out.
        on_progress: called with epochs done and the mean over runs of their lowest losses.
    """
    device = task.signals.device
    model = stack(models, task.runs).to(device)
    loss, parameters = _make_loss(model, task, operator, landmarks, solve_readout)
    stopping = EarlyStopping(model.parameters(), task.runs, schedule.patience)
    optimiser = schedule.optimiser(parameters, device)
    epoch = torch.zeros((), dtype=torch.long, device=device)
    curves = task.signals.new_full((schedule.epochs, task.runs), float("nan"))
    state = {"epoch": epoch, "curves": curves, **moments(optimiser), **stopping.state()}
    state |= {f"model.{name}": tensor for name, tensor in model.named_parameters()}
    rewind = Rewind([model], state, optimiser, task.runs)

    def one_epoch() -> None:
        schedule.set_rate(optimiser, epoch)
        optimiser.zero_grad(set_to_none=False)
        losses = loss()
        differentiate(losses.sum())
        counted = torch.where(stopping.active, losses.detach(), float("nan"))
        curves.index_copy_(0, epoch.view(1), counted.view(1, -1))
        stopping.update(losses.detach(), epoch)
        optimiser.step()
        epoch.add_(1)

    # Solving for the read-out factorises matrices, which may wait for the host: not captured.
    repeated = Repeated(one_epoch, device, capture=not solve_readout)
    done = 0
    while done < schedule.epochs:
        repeated()
        done += 1
        if done % _READ_EVERY == 0 or done == schedule.epochs:
            if on_progress:
                on_progress(done, float(stopping.best.mean()))
            if not stopping.active.any():
                break

    def again() -> Iterator[Tensor]:
        while int(epoch) <= int(ended.max()):
            one_epoch()
            yield ~curves[: int(epoch)].isfinite().all(dim=0)

    ended = first_lost(curves[:done].unsqueeze(-1), stopping.epochs)
    found = rewind.layers(again()) if (ended >= 0).any() else ended
    layers = [layer_name(model, number) for number in found.tolist()]
    largest = float(task.signals.abs().max())
    remedy = f"a lower schedule.learning_rate, or with signals smaller than {largest:.0e}"
    refuse_lost(curves[:done].cpu().numpy(), stopping.is_lost.cpu().numpy(), layers, remedy)
    stopping.restore()
    output = _outputs(model.eval(), task, operator)
    wanted = task.targets()[:, task.mask].double()
    sse = (output[:, task.mask].double() - wanted).square().sum(dim=-1)
    r2 = 1.0 - sse / (wanted - wanted.mean(dim=-1, keepdim=True)).square().sum(dim=-1)
    best, epochs = stopping.best_epoch, stopping.epochs
    return SignalFit(task, model, output, sse, r2, best, epochs, curves[:done].cpu(), layers)


def _make_loss(
    model: nn.Module,
    task: SignalTask,
    operator: object,
    landmarks: int | None,
    solve_readout: bool,
) -> tuple[Callable[[], Tensor], list[nn.Parameter]]:
    """A function of the squared errors of every run, ``[runs]``, and the parameters to train."""
    if not (isinstance(model, Specformer) and model.is_linear_filter):
        if solve_readout:
            raise ConfigError("variable projection needs a Specformer that is a linear filter.")
        inputs, wanted = task.inputs(), task.targets()
        weights = task.mask.to(wanted.dtype)

        def from_outputs() -> Tensor:
            error: Tensor = model(inputs, operator).squeeze(-1) - wanted
            return (error.square() * weights).sum(dim=-1)

        return from_outputs, list(model.parameters())
    tokens, points = task.spectrum.distinct.tokens, None
    if landmarks is not None and landmarks < len(tokens.values):
        points = task.spectrum.landmarks(landmarks)
    if not solve_readout:
        return _spectral_loss(model, task, points), list(model.parameters())
    energy = _energy(task).repeat_interleave(task.num_filters, dim=0)
    targets = task.responses.repeat(len(task.signals), 1)
    readout = ProjectedReadout(model, energy, targets)

    def projected() -> Tensor:
        # Over the whole signal: an upper bound of the error over the mask.
        error = readout.gains(tokens, points) - targets
        return (energy * error.square()).sum(dim=-1)

    return projected, list(readout.filter.encoder.parameters())


def _energy(task: SignalTask) -> Tensor:
    """Each signal's energy at each distinct eigenvalue, ``[signals, p]``."""
    groups = task.spectrum.distinct
    coefficients = task.coefficients()
    energy = coefficients.new_zeros(len(task.signals), len(groups.values))
    return energy.index_add_(1, groups.index, coefficients.square())


def _spectral_loss(
    model: Specformer, task: SignalTask, landmarks: Keys | None
) -> Callable[[], Tensor]:
    r"""The same squared errors without ever leaving the spectral domain, for linear filters.

    With c the difference of learned and true gains at the distinct eigenvalues,

    .. math::
        \sum_{v \in \text{mask}} (\hat y_v - y_v)^2
        = \sum_j e_j c_j^2 - \lVert B c \rVert^2, \qquad
        e_j = \sum_{i \in j} \hat x_i^2, \quad B_{vj} = \sum_{i \in j} U_{vi} \hat x_i

    by Parseval, with rows of B only for the nodes v outside the mask: for the paper's images 784
    instead of 10,000, and no product with U in the epoch.
    """
    groups = task.spectrum.distinct
    energy = _energy(task)
    unseen = task.spectrum.eigenvectors[~task.mask]  # [m, q]
    border = energy.new_zeros(len(energy), len(unseen), energy.shape[1])
    for signal, row in zip(border, task.coefficients(), strict=True):
        signal.index_add_(1, groups.index, unseen * row)

    def losses() -> Tensor:
        gains: Tensor = model.linear_response(groups.tokens, landmarks)[..., 0, 0]  # [runs, p]
        error = gains.unflatten(0, (-1, task.num_filters)) - task.responses
        inside = (energy.unsqueeze(1) * error.square()).sum(dim=-1)
        outside = (error @ border.mT).square().sum(dim=-1)
        return torch.flatten(inside - outside)

    return losses


@torch.no_grad()
def _outputs(model: nn.Module, task: SignalTask, operator: object) -> Tensor:
    """The output of every run for its signal, ``[runs, n]``, with exact attention."""
    if isinstance(model, Specformer) and model.is_linear_filter:
        gains: Tensor = model.linear_response(task.spectrum.distinct.tokens)[..., 0, 0]
        return task.apply(gains)
    return model(task.inputs(), operator).squeeze(-1)


#: Keeps the normal equations solvable when features are nearly dependent; relative to a unit
#: diagonal.
_RIDGE = 1e-9


class ProjectedReadout:
    r"""Solves for the decoder of a stacked Specformer and writes the solution into it.

    The response of a one-head linear Specformer is affine in the encoder's features,
    :math:`h(\lambda) = \theta_0 + z(\lambda)^\top \theta`, and the loss is quadratic in it.
    Variable projection (Golub and Pereyra, 1973) solves the least-squares problem for θ at every
    epoch and descends on what is left, a function of the encoder alone. On image filters, where a
    few eigenvalues near zero hold nearly all energy, it takes the worst-conditioned part out of
    Adam's hands: on two 40 × 40 photographs and five filters, 500 such epochs ended 7 to 220 times
    below 2000 plain ones.

    The model is stacked, of one layer and head, ``decoder="joint"``, a linear filter of one
    channel. ``energy`` ``[runs, p]`` is that of the signals at each token, the weights of the
    squares; ``targets`` ``[runs, p]`` are the gains to reach.
    """

    def __init__(self, model: Specformer, energy: Tensor, targets: Tensor) -> None:
        config = model.config
        if not model.is_linear_filter or (config["num_layers"], config["num_heads"]) != (1, 1):
            raise ConfigError(
                "variable projection needs a linear Specformer of one layer and head."
            )
        self.filter: SpectralFilter = model.filters[0]  # type: ignore[assignment]
        decoder, bases = self.filter.decoder, model.convs[0].bases
        if not isinstance(decoder, JointDecoder):
            raise ConfigError("variable projection needs decoder='joint'.")
        assert isinstance(bases, LinearBases)
        self.linear = decoder.linear
        self.energy = energy
        self.targets = targets
        with torch.no_grad():
            # h = Σ_c lift_c readout_c (w_0c + w_1c g): two constants, as only g is solved for.
            assert isinstance(model.readout, Linear)
            path = model.lift.weight.squeeze(-1) * model.readout.weight.squeeze(-2)
            self.constant, self.slope = (path.unsqueeze(-2) * bases.weight).sum(dim=-1).unbind(-1)

    def gains(self, tokens: Tokens, landmarks: Keys | None) -> Tensor:
        """The best gains ``[runs, p]`` the present features allow; the decoder is set to them."""
        filt = self.filter
        hidden, *_ = encoded(filt.encoder, tokens, landmarks)
        features = torch.cat([torch.ones_like(hidden[..., :1]), hidden], dim=-1)
        with torch.no_grad():
            theta = self._solve(features.double())
            weights = (theta[:, 1:] / self.slope.double().unsqueeze(-1)).to(hidden.dtype)
            self.linear.weight.copy_(weights.unsqueeze(-2))
            shift = (theta[:, 0] - self.constant.double()) / self.slope.double()
            assert self.linear.bias is not None
            self.linear.bias.copy_(shift.to(hidden.dtype).unsqueeze(-1))
        # Through the decoder as stored, so that the loss is that of the model as saved.
        decoded: Tensor = self.linear(hidden).squeeze(-1)
        return self.constant.unsqueeze(-1) + self.slope.unsqueeze(-1) * decoded

    def _solve(self, features: Tensor) -> Tensor:
        """Weighted least squares ``[runs, channels + 1]`` in float64, unit-scaled, ridged."""
        weighted = self.energy.double().unsqueeze(-1) * features
        normal = features.mT @ weighted
        right = weighted.mT @ self.targets.double().unsqueeze(-1)
        scale = normal.diagonal(dim1=-2, dim2=-1).clamp_min(1e-300).rsqrt().unsqueeze(-1)
        normal = normal * scale * scale.mT
        normal.diagonal(dim1=-2, dim2=-1).add_(_RIDGE)
        factor, _ = torch.linalg.cholesky_ex(normal)
        return (scale * torch.cholesky_solve(scale * right, factor)).squeeze(-1)
