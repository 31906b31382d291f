#!/bin/sh
# The tree inside another project, by add_subdirectory, and the values of NANOVLLM_CUDA. Nothing is built: cargo would ask for
# minutes, and what it makes is tested elsewhere.
#   configure.sh CMAKE SOURCE_DIR
set -eu
cmake=$1 source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
    echo "configure.sh: $*" >&2
    cat "$work/log" >&2
    exit 1
}

cat >"$work/CMakeLists.txt" <<CODE
cmake_minimum_required(VERSION 3.20)
project(game LANGUAGES C)
add_subdirectory("$source" nanovllm)
foreach(name IN ITEMS nanovllm static cpp)
  if(NOT TARGET nanovllm::\${name})
    message(FATAL_ERROR "there is no nanovllm::\${name}")
  endif()
endforeach()
foreach(name IN ITEMS generate chat cpp_engine)
  if(TARGET \${name})
    message(FATAL_ERROR "\${name} is built into somebody else's project")
  endif()
endforeach()
file(WRITE "\${CMAKE_BINARY_DIR}/empty.c" "int main(void) { return 0; }")
add_executable(game "\${CMAKE_BINARY_DIR}/empty.c")
target_link_libraries(game PRIVATE nanovllm::nanovllm)
CODE
configure() { # NAME ARGUMENT...
    name=$1
    shift
    "$cmake" -S "$work" -B "$work/$name" "$@" >"$work/log" 2>&1
}

# How cargo is called by a configured folder.
cargo_of() { grep -h "bin/cargo build" -r "$work/$1/nanovllm" --include=build.make; }

configure off -DNANOVLLM_CUDA=OFF || fail "OFF does not configure"
# The parent's install is its own.
grep -q nanovllm.h "$work/off/nanovllm/cmake_install.cmake" && fail "cmake --install of the parent installs the library"
configure installing -DNANOVLLM_CUDA=OFF -DNANOVLLM_INSTALL=ON || fail "NANOVLLM_INSTALL=ON does not configure"
grep -q nanovllm.h "$work/installing/nanovllm/cmake_install.cmake" || fail "NANOVLLM_INSTALL=ON installs nothing"
cargo_of off | grep -q -- "--no-default-features" || fail "OFF builds with CUDA"
configure maybe -DNANOVLLM_CUDA=MAYBE && fail "NANOVLLM_CUDA=MAYBE is taken"
grep -q "must be AUTO, ON or OFF" "$work/log" || fail "the message does not say what is accepted"

# A compiler that only has to be there.
mkdir -p "$work/cuda/bin" "$work/none"
printf '#!/bin/sh\n' >"$work/cuda/bin/nvcc"
chmod +x "$work/cuda/bin/nvcc"
CUDA_HOME=$work/cuda configure with_ON -DNANOVLLM_CUDA=ON || fail "ON does not configure with nvcc"
cargo_of with_ON | grep -q "NVLLM_CUDA=require" || fail "ON does not require CUDA"
CUDA_HOME=$work/cuda configure with_AUTO || fail "AUTO does not configure with nvcc"
cargo_of with_AUTO | grep -q "require\|--no-default-features" && fail "AUTO does not leave the choice to cargo"
grep -q "CUDA kernels by $work/cuda/bin/nvcc" "$work/log" || fail "the nvcc of CUDA_HOME is not named"
if ! command -v nvcc >/dev/null; then
    CUDA_HOME=$work/none configure without_ON -DNANOVLLM_CUDA=ON && fail "ON is taken without nvcc"
    grep -q "nvcc is neither in CUDA_HOME nor in PATH" "$work/log" || fail "the message does not say what is missing"
    CUDA_HOME=$work/none configure without_AUTO || fail "AUTO does not configure without nvcc"
fi
echo "add_subdirectory and NANOVLLM_CUDA are as they should be"
