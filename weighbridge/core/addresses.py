"""Server addresses that are safe to show: user names, passwords and tokens are removed."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode

SHOWN = ("stream", "db")


def without_secrets(text: str) -> str:
    """A URL without user, password and query entries other than harmless ones (``SHOWN``).

    Text that is not a URL is returned unchanged. A password with characters that should have been
    encoded is hidden too. In doubtful cases, less is shown rather than more.

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
    elif "@" in query or "#" in rest:  # they may be part of a password
        return f"{scheme}://***"
    kept = urlencode([(name, value) for name, value in parse_qsl(query) if name in SHOWN])
    return f"{scheme}://{place}{'?' if kept else ''}{kept}"
