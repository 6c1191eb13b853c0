"""Feeds: streams of rows with a cursor, cut to chunks that a resumed run sees again."""

from weighbridge.feeds.base import Cursor, Feed, Notice, Parcel
from weighbridge.feeds.chunking import Chunk, Chunks, chunks
from weighbridge.feeds.continuity import Continuity
from weighbridge.feeds.directory import DirectoryFeed
from weighbridge.feeds.files import FilesFeed
from weighbridge.feeds.iterables import IterableFeed
from weighbridge.feeds.json_lines import JsonLinesFeed
from weighbridge.feeds.memory import MemoryFeed
from weighbridge.feeds.opening import open_feed
from weighbridge.feeds.redis_stream import RedisStream
from weighbridge.feeds.streams import StreamFeed

__all__ = [
    "Chunk",
    "Chunks",
    "Continuity",
    "Cursor",
    "DirectoryFeed",
    "Feed",
    "FilesFeed",
    "IterableFeed",
    "JsonLinesFeed",
    "MemoryFeed",
    "Notice",
    "Parcel",
    "RedisStream",
    "StreamFeed",
    "chunks",
    "open_feed",
]
