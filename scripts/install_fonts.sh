#!/usr/bin/env bash
# Installs the Debian packages of the known CJK faces that are absent. The list
# is that of src/labelmapping/datasets/fonts.py; a test compares them.
set -euo pipefail

packages=(
  fonts-noto-cjk
  fonts-cns11643-kai
  fonts-cns11643-sung
  fonts-lxgw-wenkai
  fonts-hanazono
  fonts-wqy-zenhei
  fonts-babelstone-han
)

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query --show --showformat='${Status}' "$package" 2>/dev/null || true)
  [[ $status == "install ok installed" ]] || missing+=("$package")
done

if ((${#missing[@]} == 0)); then
  echo "All ${#packages[@]} font packages are installed."
  exit 0
fi

if ((EUID != 0)) || ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  echo "Font packages are absent and only root on Debian can install them here: ${missing[*]}." >&2
  exit 0
fi

export DEBIAN_FRONTEND=noninteractive
apt-get update || echo "apt-get update failed; going on with the package lists at hand." >&2
for package in "${missing[@]}"; do
  apt-get install --yes --no-install-recommends "$package" ||
    echo "apt-get could not install $package; going on without it." >&2
done
