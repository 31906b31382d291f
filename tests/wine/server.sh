#!/bin/sh
# Wine's server around the tests, in the prefix that WINEPREFIX names: server.sh start WINE, server.sh stop.
# Two programs that make the same prefix at once disturb each other, so that it is made before the tests. The server stays when the last
# program has ended, because one that starts while the server leaves fails with "recvmsg: Connection reset by peer": so did one test in
# three of 25 runs. Where nothing stops it, it leaves after a minute without programs.
set -eu
case $1 in
start)
    mkdir -p "$WINEPREFIX"
    # Fails where a server runs already.
    wineserver -p60 >/dev/null 2>&1 || true
    # The services that it starts stay too, and nobody is to wait for the end of what they print.
    exec "$2" wineboot --init </dev/null >/dev/null 2>&1
    ;;
stop) wineserver -k >/dev/null 2>&1 || true ;;
esac
