"""The figures of a run while it is running."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any

from ._program import Error

if TYPE_CHECKING:
    Path = str | os.PathLike[str]

__all__ = ["live"]


def live(where: Path, *, token: str | None = None, timeout: float = 5.0) -> dict[str, Any]:
    """Returns the current figures of a run, which are those of its page (`/page.json`).

    `where` is the address that the run printed, or its output directory. An address that is not loopback needs a token: if
    `token` is None, the one in `AMPERE_TOKEN_FILE` or in the output directory is used. Call this function again for newer
    figures: a collector makes them several times a second. After the run and its collector have ended, it raises an `Error`.
    """
    import http.client
    import urllib.error
    import urllib.request

    url, token_file, run = _address(os.fspath(where))
    if token is None and token_file is not None:
        try:
            with open(token_file, encoding="ascii") as file:
                token = file.read().strip()
        except OSError as error:
            raise Error(f"cannot read the token in {token_file}: {error.strerror}") from None
    request = urllib.request.Request(url.rstrip("/") + "/page.json")
    if token:
        request.add_header("Authorization", f"Bearer {token}")

    class NoRedirect(urllib.request.HTTPRedirectHandler):
        """Follows no redirection: a collector never sends one, and the other address would get the token."""

        def redirect_request(self, *_: Any) -> None:
            return None

    # The proxies that the environment names are not used, because they are for other sites.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), NoRedirect)
    try:
        with opener.open(request, timeout=timeout) as answer:
            figures = json.load(answer)
            of_run = figures["run"]["id"]
    except urllib.error.HTTPError as error:
        raise Error(f"{url} answers {error.code}: {error.read().decode('utf-8', 'replace').strip() or error.reason}") from None
    except urllib.error.URLError as error:
        raise Error(f"{url} does not answer: {error.reason}; is the run still running?") from None
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
        raise Error(f"{url} does not answer as ampere does: {error}") from None
    # A collector that has just started does not know its run's id yet.
    if run and of_run not in ("", run):
        raise Error(f"the collector at {url} belongs to another run than {where}")
    return figures


def _address(where: str) -> tuple[str, str | None, str]:
    """Returns the URL, the file of the token that is needed, if there is one, and the run's id, if it is known."""
    own_token = os.environ.get("AMPERE_TOKEN_FILE")
    if where.startswith(("http://", "https://")):
        return where.split("#")[0], own_token, ""
    path = os.path.join(where, "collector.json")
    try:
        with open(path, encoding="utf-8") as file:
            # The results of another user may name any address, which must not get a token.
            is_own = os.fstat(file.fileno()).st_uid == os.getuid()
            announced = json.load(file)
            url, node, run = announced["url"], announced.get("node", ""), announced.get("run", "")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise Error(f"no run is running in {where}: {path} names no address; give the run's directory or http://...") from None
    if not str(url).startswith("http://"):
        raise Error(f"the run in {where} listens on {url}: Python can only read addresses that begin with http://")
    own_node = re.escape(os.uname().nodename) + "(-[0-9a-f]{8})?"
    if node and not re.fullmatch(own_node, node):
        # A wildcard address would mean this node, where another collector may listen.
        url = re.sub(r"^http://(0\.0\.0\.0|\[::\]):", f"http://{node}:", url)
        if re.match(r"http://(127\.|\[::1\])", url):
            raise Error(f"the run in {where} can be reached only on {node} ({url}): call this there, or start the run with --listen")
    token = os.path.join(where, "collector.token")
    return url, (own_token or (token if os.path.exists(token) else None)) if is_own else None, run
