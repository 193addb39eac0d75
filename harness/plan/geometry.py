"""A decoder-only transformer by its sizes: how many parameters it has, and how many values of KV a token leaves."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): all heads share one compressed key and value.

    Sizes of the KV latent, the rotary part of a key, the query's latent (None: not compressed), the part of a key
    without position, and a head's value.
    """

    latent: int
    rope: int
    query_latent: int | None
    nope: int
    value: int


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts: `active` of `routed` per token, `shared` always, in `layers` of the model's layers."""

    routed: int
    active: int
    shared: int
    intermediate: int
    layers: int


@dataclass(frozen=True, slots=True)
class Geometry:
    """Sizes of a model whose MLP is gated (three matrices), as config.json names them.

    window, window_layers: attention of that many layers sees only so many tokens. norms: vectors of the hidden
    size a layer has. query_bias: biases on query, key and value. head_norms: a norm on each head's query and key.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    context_length: int
    tied_embeddings: bool = False
    window: int | None = None
    window_layers: int = 0
    norms: int = 2
    query_bias: bool = False
    head_norms: bool = False
    latent: LatentAttention | None = None
    experts: Experts | None = None

    @property
    def full_layers(self) -> int:
        """Layers whose attention sees the whole context."""
        return self.layers - self.window_layers

    @property
    def kv_values(self) -> int:
        """Values that one token adds to the cache of one layer.

        2 · kv_heads · head_dim; with latent attention the latent and the rotary key, once for all heads.
        """
        if self.latent:
            return self.latent.latent + self.latent.rope
        return 2 * self.kv_heads * self.head_dim

    @property
    def attention_matrices(self) -> int:
        """Parameters of one layer's attention projections."""
        if self.latent is None:
            return 2 * self.hidden * (self.heads + self.kv_heads) * self.head_dim
        a = self.latent
        query = self.heads * (a.nope + a.rope)
        queries = a.query_latent * (self.hidden + query) if a.query_latent else self.hidden * query
        keys_values = self.hidden * (a.latent + a.rope) + a.latent * self.heads * (a.nope + a.value)
        return queries + keys_values + self.heads * a.value * self.hidden

    @property
    def expert_parameters(self) -> int:
        """Parameters of one routed or shared expert; 0 in a dense model."""
        return 3 * self.hidden * self.experts.intermediate if self.experts else 0

    @property
    def common_matrices(self) -> int:
        """Parameters of all layers' matrices that every token passes: all but the routed experts."""
        mlps = self.layers * 3 * self.hidden * self.intermediate
        if self.experts:
            each = self.experts.shared * self.expert_parameters + self.hidden * self.experts.routed
            dense = self.layers - self.experts.layers
            mlps = dense * 3 * self.hidden * self.intermediate + self.experts.layers * each
        return self.layers * self.attention_matrices + mlps

    def matrices(self, experts: float | None = None) -> float:
        """Parameters of all layers' matrices, with so many routed experts of each expert layer (None: all)."""
        if self.experts is None:
            return self.common_matrices
        count = self.experts.routed if experts is None else experts
        return self.common_matrices + self.experts.layers * count * self.expert_parameters

    @property
    def head(self) -> int:
        """Parameters of the output head, whether or not they are the embedding's."""
        return self.vocabulary * self.hidden

    @property
    def embeddings(self) -> int:
        """Parameters of the embedding and, unless tied, the output head."""
        return self.head * (1 if self.tied_embeddings else 2)

    @property
    def vectors(self) -> int:
        """Parameters of norms and biases."""
        each = self.norms * self.hidden
        if self.query_bias:
            each += (self.heads + 2 * self.kv_heads) * self.head_dim
        if self.head_norms:
            each += 2 * self.head_dim
        if self.latent:
            each += self.latent.latent + (self.latent.query_latent or 0)
        return self.layers * each + self.hidden

    @property
    def parameters(self) -> int:
        """All of them."""
        return int(self.matrices()) + self.embeddings + self.vectors

    @property
    def active_parameters(self) -> int:
        """Those that one token passes: experts that were not chosen and the embedding's lookup left out."""
        active = self.experts.active if self.experts else None
        return int(self.matrices(active)) + self.head + self.vectors
