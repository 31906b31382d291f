#!/bin/bash
# Checks the Go binding, the Go server and its manifests with an installed library.
#   go.sh BUILD_DIR
#
# The library is installed into BUILD_DIR/go-prefix, where pkg-config finds it, shared and static. If there is no Go of the
# required version, the toolchain that the Go project publishes on its module proxy is installed into BUILD_DIR.
set -euo pipefail
build=${1:?usage: go.sh BUILD_DIR}
cd "$(dirname "$0")/.."
mkdir -p "$build"
build=$(cd "$build" && pwd)
[ -e "$build/lib/libnanovllm.so" ] || { echo "go.sh: nothing is built in $build yet: run make demo first" >&2; exit 1; }

toolchain=go1.26.8
toolchain_sha256=30c2b1bf7dcc88d3eb0a1364e47ddd9128edb3110a30e8a0ef61cd5856b31de7
# Of PyPI, and of npm.
python_clients=(openai==3.57.0 anthropic==2.14.0)
node_clients=(openai@6.49.0 @anthropic-ai/sdk@1.14.0)

wanted=${toolchain#go}
found=$(GOTOOLCHAIN=local go env GOVERSION 2>/dev/null || true)
if [ "$(printf '%s\n' "${wanted%.*}" "${found#go}" | sort -V | head -n 1)" != "${wanted%.*}" ]; then
    root=$build/go/golang.org/toolchain@v0.0.1-$toolchain.linux-amd64
    if [ ! -x "$root/bin/go" ]; then
        [ "$(uname -sm)" = "Linux x86_64" ] || { echo "go.sh: please install Go ${wanted%.*}" >&2; exit 1; }
        echo "go.sh: installing $toolchain into $build/go"
        curl -sSf --retry 3 -o "$build/go.zip" \
            "https://proxy.golang.org/golang.org/toolchain/@v/v0.0.1-$toolchain.linux-amd64.zip"
        echo "$toolchain_sha256  $build/go.zip" | sha256sum --check --quiet
        mkdir -p "$build/go"
        (cd "$build/go" && cmake -E tar xf "$build/go.zip")
        rm "$build/go.zip"
        chmod -R +x "$root/bin" "$root/pkg/tool"
    fi
    export PATH="$root/bin:$PATH"
fi
export GOTOOLCHAIN=local CGO_ENABLED=1

work=$(mktemp -d)
server=
end() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    rm -rf "$work"
}
trap end EXIT
prefix=$build/go-prefix
rm -rf "$prefix"
cmake --install "$build" --prefix "$prefix" >/dev/null
library=$(dirname "$(find "$prefix" -name libnanovllm.so)")
export PKG_CONFIG_PATH="$library/pkgconfig" LD_LIBRARY_PATH="$library"
# Go's build cache does not notice changes of the pkg-config file or the header, but it depends on this variable.
stamp=$({ echo "$prefix"; cat include/nanovllm.h; } | sha256sum | cut -c 1-16)
export CGO_CFLAGS="-g -O2 -DNANOVLLM_STAMP=0x$stamp"
NANOVLLM_MODEL=$PWD/models/demo
export NANOVLLM_MODEL

formatted=$(gofmt -l bindings/go examples/go)
[ -z "$formatted" ] || { echo "go.sh: gofmt would change: $formatted" >&2; exit 1; }

echo "== the binding, with $(go env GOVERSION)"
(
    cd bindings/go
    go vet .
    go test -race -count=1 .
    # The rules for pointers between C and Go are checked; and the package without the shared library.
    GOEXPERIMENT=cgocheck2 go test -count=1 .
    env -u LD_LIBRARY_PATH go test -count=1 -tags nanovllm_static -run Example .
    go test -run '^$' -bench Nothing -benchtime 50ms . | grep ^Benchmark
)

echo "== the programs of the pages"
. tests/docs/pages.sh
mkdir "$work/blocks"
# shellcheck disable=SC2086 # a list of paths
awk -v out="$work/blocks" -f tests/docs/blocks.awk $pages >"$work/list"
blocks() { # CONDITION: the files of the blocks, by how they run ($4) and as which file ($5)
    local found
    found=$(awk -F '\t' "$1 { print \$6 }" "$work/list")
    [ -n "$found" ] || { echo "go.sh: no page has a block with $1" >&2; return 1; }
    echo "$found"
}
binding=$PWD/bindings/go
mkdir -p "$work/hello/models"
ln -s "$NANOVLLM_MODEL" "$work/hello/models/demo"
cp "$(blocks '$5 == "main.go"')" "$work/hello/main.go"
sed "s|=PATH$|=$binding|" "$(blocks '$4 == "with main.go"')" >"$work/commands"
(cd "$work/hello" && sh -eu "$work/commands" | grep . && go vet .)

echo "== the program of bindings/go/README.md"
mkdir "$work/chat"
awk '/^```go$/ { inside = 1; next } /^```$/ { inside = 0 } inside' bindings/go/README.md >"$work/chat/main.go"
(
    cd "$work/chat"
    go mod init chat 2>/dev/null
    go mod edit -require libnanovllm/bindings/go@v0.0.0 -replace libnanovllm/bindings/go="$binding"
    go vet .
    # As that page says: the library's folder in the program, and what happens without.
    CGO_LDFLAGS="-Wl,-rpath,$(pkg-config --variable=libdir nanovllm)" go build -o chat .
    echo "list all prime numbers within 10" | env -u LD_LIBRARY_PATH ./chat "$NANOVLLM_MODEL" | grep "2, 3, 5, 7"
    # Other flags, so that nothing comes from Go's build cache.
    if CGO_CFLAGS=-DNANOVLLM_STAMP=1 PKG_CONFIG_LIBDIR=/nowhere PKG_CONFIG_PATH="" go build -o missing . 2>missing.log; then
        echo "go.sh: a program was built without the library" >&2
        exit 1
    fi
    grep -q "Package nanovllm was not found in the pkg-config search path" missing.log
    mkdir alone && cd alone
    go mod init alone 2>/dev/null
    if go get libnanovllm/bindings/go 2>get.log; then
        echo "go.sh: go get works: change bindings/go/README.md" >&2
        exit 1
    fi
    grep -q "missing dot in first path element" get.log
)

echo "== the server"
(
    cd examples/go/server
    go vet .
    go test -count=1 .
)
# As docs/server.md builds it, with another folder for the program.
mkdir "$work/root"
ln -s "$PWD/examples" "$work/root/examples"
(cd "$work/root" && sh -eu "$(blocks '$4 == "with the build of the server"')")
mv "$work/root/nanovllm-server" "$work/server"
# It finds the library where pkg-config found it, and beside itself where it is installed.
env -u LD_LIBRARY_PATH "$work/server" -version | grep nanovllm-server
cp "$work/server" "$prefix/bin/nanovllm-server"
mv "$prefix" "$prefix-moved"
env -u LD_LIBRARY_PATH "$prefix-moved/bin/nanovllm-server" -version >/dev/null
mv "$prefix-moved" "$prefix"
# For the package of Debian, which scripts/deb.sh makes.
(cd examples/go/server && go build -tags nanovllm_system -trimpath -buildmode=pie -ldflags=-s -o "$build/server/nanovllm-server" .)

echo "== the manifests"
(
    cd examples/go/server/kubernetes
    go vet .
    go test -count=1 .
)

echo "== the server and the official clients"
if [ ! -x "$build/openai/bin/python" ]; then
    python3 -m venv "$build/openai"
fi
"$build/openai/bin/pip" install --quiet --disable-pip-version-check "${python_clients[@]}"
# Starts the server with further flags, on a port of its own.
start() {
    : >"$work/log" # or the address of the server before would be read
    "$work/server" -model models/demo -addr 127.0.0.1:0 "$@" 2>"$work/log" &
    server=$!
    for _ in $(seq 100); do
        url=$(sed -n 's/.* at \(http:[^"]*\)"$/\1/p' "$work/log")
        [ -z "$url" ] || return 0
        sleep 0.1
    done
    echo "go.sh: the server did not start:" >&2
    cat "$work/log" >&2
    return 1
}
stop() {
    kill "$server"
    wait "$server" || { echo "go.sh: the server ended with $?:" >&2; cat "$work/log" >&2; return 1; }
    server=
}
start -api-key secret
"$build/openai/bin/python" examples/go/server/client_test.py "$url" secret
"$build/openai/bin/python" examples/go/server/client_messages_test.py "$url" secret
if command -v npm >/dev/null; then
    mkdir -p "$build/node"
    npm install --silent --no-audit --no-fund --no-save --prefix "$build/node" "${node_clients[@]}"
    cp examples/go/server/client_test.mjs "$build/node"
    node "$build/node/client_test.mjs" "$url" secret
else
    echo "go.sh: no npm here: the clients for Node are not tried" >&2
fi
stop

echo "== the requests of the pages"
start
# A status that is no success is a failure, which it is not for curl alone.
mkdir "$work/bin"
printf '#!/bin/sh\nexec %s --fail-with-body --silent --show-error "$@"\n' "$(command -v curl)" >"$work/bin/curl"
chmod +x "$work/bin/curl"
requests=$(blocks '$4 == "with the server"')
for block in $requests; do
    sed "s|http://localhost:8000|$url|g" "$block" >"$block.here"
    case $block in
    *.sh) PATH="$work/bin:$PATH" sh -eu "$block.here" ;;
    *.python) "$build/openai/bin/python" "$block.here" ;;
    *) echo "go.sh: nobody runs $block" >&2; exit 1 ;;
    esac >"$work/answer" || { echo "go.sh: $block failed: $(cat "$work/answer")" >&2; exit 1; }
    grep -q . "$work/answer" || { echo "go.sh: $block printed nothing" >&2; exit 1; }
done
stop
echo "Go: all passed"
