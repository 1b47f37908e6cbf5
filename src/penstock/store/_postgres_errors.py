"""Addresses and errors of PostgreSQL, in one line each and without secrets."""

from __future__ import annotations

from urllib.parse import quote

import psycopg
from psycopg.conninfo import conninfo_to_dict

from penstock.errors import ConfigError, StoreError, StoreUnavailableError

__all__ = ["Translated", "parse"]

_SECRET = ("password", "sslpassword")

# By the code of the error, or the first two characters of it: what that means and what to do.
_STATES = {
    "08": "is gone: see whether the server runs",
    "53100": "cannot grow, the server's disk is full: make room there",
    "53300": "takes no more connections: close some, or raise max_connections",
    "53": "has run out of something: see the server's log",
    "57P": "is shutting down or starting: try again",
    "57014": "took too long for its statement_timeout, or was told to cancel",
    "25006": "is read-only: use the primary server, or switch default_transaction_read_only off",
    "42501": "lacks a right: grant it as docs/reference/store.md says",
    "40": "had to give way to another transaction: try again",
    "55P03": "is locked by another session: end that one",
    "58": "has trouble with its disk: see the server's log",
}

# What the server or libpq says when there is no connection yet, and so no code.
_PHRASES = {
    "password authentication failed": "refuses the user or the password: correct the URL",
    "no password supplied": "wants a password: add it to the URL, or set PGPASSWORD",
    "does not exist": "lacks that database or role: create it, or correct the URL",
    "no pg_hba.conf entry": "lets nobody in from here: add a line to its pg_hba.conf",
    "Connection refused": "is not there, nobody listens at that port: start it, or correct the URL",
    "could not translate host name": "has no such host: correct the URL",
    "failed to resolve host": "has no such host: correct the URL",
    "timeout": "does not answer: correct the URL, or look at the network",
    "connection slots": "takes no more connections: close some, or raise max_connections",
    "too many clients": "takes no more connections: close some, or raise max_connections",
    "starting up": "is starting: try again",
    "shutting down": "is shutting down: try again",
}


def parse(url: str) -> tuple[dict[str, str], tuple[str, ...], str]:
    """Return the settings of a connection, what in them is secret, and the address to show."""
    try:
        settings = {name: str(value) for name, value in conninfo_to_dict(url).items()}
    except psycopg.ProgrammingError:
        settings = {}
    if not settings or _is_torn(settings):
        # What libpq says may quote the password, so it is not repeated.
        raise ConfigError(
            "store: the address of PostgreSQL cannot be read: use "
            "postgresql://user:password@host:port/database, with %40 for @, %3A for : and %2F for "
            "/ in the password"
        )
    secrets = tuple(settings[name] for name in _SECRET if settings.get(name))
    return settings, secrets, _address(settings)


def _is_torn(settings: dict[str, str]) -> bool:
    """Whether a character of the password has made parts of it a host, a port or a database."""
    ports = settings.get("port", "").replace(",", "")
    places = settings.get("host", "") + settings.get("dbname", "")
    return "@" in places or not (ports.isdecimal() or not ports)


def _address(settings: dict[str, str]) -> str:
    user = f"{settings['user']}@" if "user" in settings else ""
    port = f":{settings['port']}" if "port" in settings else ""
    return f"postgresql://{user}{settings.get('host', '')}{port}/{settings.get('dbname', '')}"


class Translated:
    """Turns errors of PostgreSQL into one line that says what to do."""

    def __init__(self, address: str, secrets: tuple[str, ...]) -> None:
        self._address = address
        self._secrets = secrets

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Raise a StoreError in place of the driver's error."""
        if isinstance(error, psycopg.Error):
            # The driver's error is left out of the chain: its text is not free of secrets.
            raise self._translate(error) from None

    def _translate(self, error: psycopg.Error) -> StoreError:
        text = self._clean(str(error))
        state = error.sqlstate
        if state is None:
            return StoreUnavailableError(f"{self._address} {_by_phrase(text)} ({text})")
        meaning = next((_STATES[key] for key in _keys(state) if key in _STATES), None)
        if meaning is None:
            return StoreError(f"{self._address}: {text} ({state})")
        return StoreUnavailableError(f"{self._address} {meaning} ({text})")

    def _clean(self, text: str) -> str:
        for secret in self._secrets:
            for form in (secret, quote(secret, safe="")):
                text = text.replace(form, "***")
        return " ".join(text.split())


def _keys(state: str) -> tuple[str, ...]:
    return (state, state[:3], state[:2])


def _by_phrase(text: str) -> str:
    found = (meaning for phrase, meaning in _PHRASES.items() if phrase in text)
    return next(found, "cannot be reached: see whether the server runs")
