package nanovllm

// #include <nanovllm.h>
import "C"

// Limits of one request, whatever the engine's configuration. A request that exceeds one is refused with [ErrInvalidArgument].
const (
	MaxCompletions       = C.NVLLM_MAX_COMPLETIONS        // of one request
	MaxQueuedCompletions = C.NVLLM_MAX_QUEUED_COMPLETIONS // of all requests of an engine; Config.MaxQueue lowers it
	MaxStopStrings       = C.NVLLM_MAX_STOP_STRINGS       // of one request
	MaxStopStringBytes   = C.NVLLM_MAX_STOP_STRING_BYTES  // per stop string
	MaxStopTokens        = C.NVLLM_MAX_STOP_TOKENS        // of one request
	MaxBiases            = C.NVLLM_MAX_BIASES             // of one request
	MaxScoreTokens       = C.NVLLM_MAX_SCORE_TOKENS       // of one request
	MaxDryBreakers       = C.NVLLM_MAX_DRY_BREAKERS       // sequence breakers of one request
	MaxDryBreakerBytes   = C.NVLLM_MAX_DRY_BREAKER_BYTES  // per sequence breaker
	MaxTextBytes         = C.NVLLM_MAX_TEXT_BYTES         // of a prompt, or of a text to tokenize
	MaxStructureBytes    = C.NVLLM_MAX_STRUCTURE_BYTES    // of a JSON schema, a regular expression or a Lark grammar
	MaxMessagesBytes     = C.NVLLM_MAX_MESSAGES_BYTES     // of the JSON of a conversation, and of its tools
)
