# SPDX-License-Identifier: MIT
#
# packages.sh - sourced by the scripts beside it: installs what is missing.

missing=

# need PACKAGE COMMAND...: PACKAGE (Debian's name) is missing if COMMAND fails.
need() {
    package=$1
    shift
    "$@" >/dev/null 2>&1 || missing="$missing $package"
}

need_command() { need "$1" command -v "$2"; }
need_library() { need "$1" pkg-config --exists "$2"; }

need_build_tools() {
    need_command gcc cc
    need libc6-dev test -e /usr/include/stdio.h
    need_command cmake cmake
    need_command ninja-build ninja
    if command -v pkg-config >/dev/null 2>&1; then
        need_library libjansson-dev jansson
    else
        missing="$missing pkg-config libjansson-dev"
    fi
}

# Installs $missing; where that cannot be done, says what is missing and fails.
install_missing() {
    [ -n "$missing" ] || return 0
    if ! command -v apt-get >/dev/null 2>&1; then
        echo "error: these are missing; please install them (names of Debian packages):$missing" >&2
        return 1
    fi
    sudo=
    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null 2>&1; then
            echo "error: please run as root: apt-get install$missing" >&2
            return 1
        fi
        sudo="sudo"
    fi
    echo "installing$missing"
    # A package list is needed once; an old one is tried first.
    # shellcheck disable=SC2086
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing \
        >/dev/null 2>&1 ||
        { $sudo apt-get update >/dev/null &&
            $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
                $missing >/dev/null; } ||
        { echo "error: apt-get install$missing failed" >&2; return 1; }
    missing=
}
