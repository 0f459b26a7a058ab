"""Encoders and decoders of autoencoders, to be exchanged for each other or for your own."""

from .abstract import AbstractDecoder as AbstractDecoder
from .abstract import AbstractEncoder as AbstractEncoder
from .compact import CompactDecoder as CompactDecoder
from .compact import CompactEncoder as CompactEncoder
from .mlp import MLPDecoder as MLPDecoder
from .mlp import MLPEncoder as MLPEncoder
from .published import PublishedDecoder as PublishedDecoder
from .published import PublishedEncoder as PublishedEncoder
