"""Listen: uvicorn with the service's application."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_pipeline.errors import ConfigurationError, InputError, require, shown
from memory_pipeline.service.callers import LOOPBACK

require("serve", "fastapi")

import uvicorn  # noqa: E402  # it comes with the extra

from memory_pipeline.service.announcement import Announcement  # noqa: E402
from memory_pipeline.service.app import service_app  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from socket import socket
    from typing import Any

    from starlette.types import ASGIApp

    from memory_pipeline.domain.scopes import Scope
    from memory_pipeline.lake import Lake

#: Seconds that requests have to end when the service stops.
_GRACE = 10


class _Server(uvicorn.Server):
    """A server that tells the hooks of coding agents while it listens. It ends by the signal that stops it."""

    announcement: Announcement | None = None

    async def startup(self, sockets: list[socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and self.announcement is not None:
            self.announcement.write()

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        if self.announcement is not None:
            self.announcement.withdraw()
        await super().shutdown(sockets)


def serve(
    lake: Lake,
    default: Scope,
    host: str,
    port: int,
    announce: Callable[[str], None],
    *,
    certificate: Path | None = None,
    key: Path | None = None,
    **options: Any,
) -> None:
    """Serve a lake until the process is asked to end; see :func:`~memory_pipeline.service.app.service_app`.

    `announce` gets the address, once it is known to be allowed.

    Raises:
        ConfigurationError: other machines could reach it without a token, or the address cannot be used.
        InputError: of certificate and key, one is missing.
    """
    is_local = host in LOOPBACK
    if not is_local and not lake.tokens.exist():
        raise ConfigurationError(
            f"host {shown(host)} can be reached from other machines, and there are no tokens; make one with "
            "`memory-pipeline tokens create`, or listen on 127.0.0.1"
        )
    if (certificate is None) != (key is None):
        raise InputError("TLS needs a certificate and its key; give --tls-certificate and --tls-key")
    app = service_app(lake, default, allows_open=is_local, **options)
    announce(f"serving {lake.storage.uri} on {'https' if certificate else 'http'}://{host}:{port}, documented at /docs")
    announcement = Announcement(lake, default, host, port) if is_local and certificate is None else None
    listen(app, host, port, certificate, key, announcement)


def listen(
    app: ASGIApp,
    host: str,
    port: int,
    certificate: Path | None = None,
    key: Path | None = None,
    announcement: Announcement | None = None,
) -> None:
    """Serve an application until the process is asked to end.

    Raises:
        ConfigurationError: the address cannot be used.
    """
    configuration = uvicorn.Config(
        app, host, port, access_log=False, log_level="warning", timeout_graceful_shutdown=_GRACE, server_header=False,
        ssl_certfile=None if certificate is None else str(certificate), ssl_keyfile=None if key is None else str(key),
    )  # fmt: skip
    server = _Server(configuration)
    server.announcement = announcement
    try:
        server.run()
    except SystemExit:
        raise ConfigurationError(
            f"port {port} of {shown(host)} cannot be used; choose another one with --port"
        ) from None
