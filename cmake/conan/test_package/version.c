#include <nanovllm.h>
#include <stdio.h>

int main(void) {
  printf("%s\n", nvllm_version());
  return nvllm_abi_version() != NVLLM_ABI_VERSION;
}
