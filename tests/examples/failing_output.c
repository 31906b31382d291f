/* The chat example is compiled for its test to poll here: the end of the first answer becomes an error. */
#include <nanovllm.h>

nvllm_status failing_poll_output(nvllm_engine *engine, nvllm_output *output, nvllm_error *error);

nvllm_status failing_poll_output(nvllm_engine *engine, nvllm_output *output, nvllm_error *error) {
  static int has_failed;
  nvllm_status status = nvllm_poll_output(engine, output, error);
  if (status == NVLLM_OK && output->finish_reason != NVLLM_FINISH_NONE && !has_failed) {
    has_failed = 1;
    output->finish_reason = NVLLM_FINISH_ERROR;
    output->status = NVLLM_ERR_OUT_OF_MEMORY;
    output->error_message = "an error of the test";
  }
  return status;
}
