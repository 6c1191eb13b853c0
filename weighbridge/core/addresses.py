"""Addresses of servers as they may be shown: without what is secret in them."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode

SHOWN = ("stream", "db")


def without_secrets(text: str) -> str:
    """A URL without user, password and whatever its query holds beside harmless names.

    What is no URL is given back as it is. Passwords with characters that should have been encoded
    are hidden too: rather too little is shown than too much.

    >>> without_secrets("redis://me:secret@host:6379/0?stream=s&password=secret")
    'redis://***@host:6379/0?stream=s'
    >>> without_secrets("redis://me:se/c?t@host"), without_secrets("data/rows.csv")
    ('redis://***', 'data/rows.csv')
    """
    scheme, separator, rest = text.partition("://")
    if not separator or not scheme.isalpha():
        return text
    place, _, query = rest.partition("?")
    if "@" in place:
        place = f"***@{place.rpartition('@')[2]}"
    elif "@" in query or "#" in rest:  # they may belong to a password: nobody can tell
        return f"{scheme}://***"
    kept = urlencode([(name, value) for name, value in parse_qsl(query) if name in SHOWN])
    return f"{scheme}://{place}{'?' if kept else ''}{kept}"
