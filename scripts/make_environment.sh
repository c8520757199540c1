#!/usr/bin/env bash
# Makes .venv with the given Python; on a bare Debian, as root, installs python3-venv first.
set -euo pipefail

python=${1:-python3}
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
  if ((EUID == 0)) && command -v apt-get >/dev/null; then
    apt-get update
    DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends python3 python3-venv
  else
    echo "$python cannot make environments: install Python 3.11 or newer with venv (Debian: python3-venv)." >&2
    exit 1
  fi
fi
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
  echo "labelmapping needs Python 3.11 or newer, $python is $("$python" --version)." >&2
  exit 1
fi
rm -rf .venv
"$python" -m venv .venv
