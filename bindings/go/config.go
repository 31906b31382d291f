package nanovllm

// #include <nanovllm.h>
import "C"

import "unsafe"

// A Device says where an engine computes.
type Device int

// The devices.
const (
	DeviceDefault Device = iota // DeviceAuto
	DeviceCPU
	DeviceCUDA
	DeviceAuto // an NVIDIA GPU where there is one for the library and the model, else the CPU
)

// A DType is a number type of weights and KV cache.
type DType int

// The number types.
const (
	DTypeAuto DType = C.NVLLM_DTYPE_AUTO // as the model's files have it
	DTypeF32  DType = C.NVLLM_DTYPE_F32
	DTypeF16  DType = C.NVLLM_DTYPE_F16
	DTypeBF16 DType = C.NVLLM_DTYPE_BF16
)

// A LoadMode says how the weights of a model come into memory.
type LoadMode int

// The load modes.
const (
	LoadMap  LoadMode = C.NVLLM_LOAD_MAP  // the files are mapped: one that becomes shorter ends the process
	LoadRead LoadMode = C.NVLLM_LOAD_READ // the files are copied: later changes to them have no effect
)

// A Config is what an engine is opened with. The zero value of a field is its default; only ModelPath has none.
type Config struct {
	ModelPath         string // the model folder as Hugging Face lays it out
	Device            Device
	DeviceIndex       int    // which GPU
	DType             DType  //
	NumThreads        int    // threads that compute; default all cores
	MaxModelLen       int    // tokens of one sequence, prompt and answer together; default the model's maximum
	MaxNumSeqs        int    // sequences that run at once
	MaxBatchedTokens  int    // new tokens in one forward pass
	MaxQueue          int    // requests that may wait; default no limit
	KVBlockSize       int    // tokens of a KV block
	KVCacheBytes      uint64 // default by MemoryUtilization
	MemoryUtilization float64
	TensorParallel    int    // GPUs that share the work; default 1
	NoPrefixCache     bool   // do not share the KV blocks of equal beginnings
	EnforceEager      bool   // no CUDA graphs
	BatchInvariant    bool   // the same tokens whatever else is in the batch, bit for bit
	Seed              uint64 // of requests that bring none; default drawn from the system
	LoadMode          LoadMode
}

// check refuses what the fields of the C API cannot say.
func (c *Config) check() error {
	if err := withoutNUL("ModelPath", c.ModelPath); err != nil {
		return err
	}
	if err := inSignedRange(number{"DeviceIndex", c.DeviceIndex}, number{"DType", int(c.DType)}); err != nil {
		return err
	}
	return inRange(
		number{"NumThreads", c.NumThreads}, number{"MaxModelLen", c.MaxModelLen}, number{"MaxNumSeqs", c.MaxNumSeqs},
		number{"MaxBatchedTokens", c.MaxBatchedTokens}, number{"MaxQueue", c.MaxQueue},
		number{"KVBlockSize", c.KVBlockSize}, number{"TensorParallel", c.TensorParallel})
}

// native returns the struct of the C API, without the path.
func (c *Config) native() C.nvllm_engine_config {
	var config C.nvllm_engine_config
	C.nvllm_engine_config_init(&config, C.sizeof_nvllm_engine_config)
	switch c.Device {
	case DeviceCPU:
		config.device = C.NVLLM_DEVICE_CPU
	case DeviceCUDA:
		config.device = C.NVLLM_DEVICE_CUDA
	case DeviceAuto:
		config.device = C.NVLLM_DEVICE_AUTO
	}
	config.device_index = C.int32_t(c.DeviceIndex)
	config.dtype = C.int32_t(c.DType)
	config.num_threads = C.uint32_t(c.NumThreads)
	config.max_model_len = C.uint32_t(c.MaxModelLen)
	config.max_num_seqs = C.uint32_t(c.MaxNumSeqs)
	config.max_batched_tokens = C.uint32_t(c.MaxBatchedTokens)
	config.max_queue = C.uint32_t(c.MaxQueue)
	config.kv_block_size = C.uint32_t(c.KVBlockSize)
	config.kv_cache_bytes = C.uint64_t(c.KVCacheBytes)
	config.memory_utilization = C.float(c.MemoryUtilization)
	if c.TensorParallel != 0 {
		config.tensor_parallel_size = C.uint32_t(c.TensorParallel)
	}
	if c.NoPrefixCache {
		config.enable_prefix_cache = 0
	}
	config.enforce_eager = flag(c.EnforceEager)
	config.batch_invariant = flag(c.BatchInvariant)
	config.seed = C.uint64_t(c.Seed)
	config.load_mode = C.int32_t(c.LoadMode)
	return config
}

func flag(on bool) C.uint32_t {
	if on {
		return 1
	}
	return 0
}

// ModelInfo is what is known about a loaded model.
type ModelInfo struct {
	VocabSize        int    // tokens that the embedding table knows
	MaxModelLen      int    // tokens of one sequence, prompt and answer together
	NumLayers        int    //
	HiddenSize       int    // width of the residual stream
	BOSToken         int    // -1 = none
	EOSToken         int    // the first of the tokens that end an answer; -1 = none
	NumParameters    uint64 // weights, shared ones counted once
	WeightBytes      uint64 // bytes of these
	KVCacheBytes     uint64 // bytes of the KV cache
	NumKVBlocks      int    // its blocks
	KVBlockSize      int    // tokens of a block
	Device           Device // DeviceCPU or DeviceCUDA, whichever DeviceAuto chose
	DeviceIndex      int    // which GPU
	MaxNumSeqs       int    // sequences that run at once
	MaxBatchedTokens int    // new tokens in one forward pass
}

// ModelInfo returns facts about the model.
func (e *Engine) ModelInfo() (ModelInfo, error) {
	if err := e.enter(); err != nil {
		return ModelInfo{}, err
	}
	defer e.leave()
	var failed C.nvllm_error
	info := C.nvllm_model_info{struct_size: C.sizeof_nvllm_model_info}
	if status := C.nvllm_engine_model_info(e.native, &info, &failed); status != C.NVLLM_OK {
		return ModelInfo{}, errorOf(status, &failed)
	}
	device := DeviceCPU
	if info.device == C.NVLLM_DEVICE_CUDA {
		device = DeviceCUDA
	}
	return ModelInfo{
		VocabSize:        int(info.vocab_size),
		MaxModelLen:      int(info.max_model_len),
		NumLayers:        int(info.num_layers),
		HiddenSize:       int(info.hidden_size),
		BOSToken:         int(int32(info.bos_token)),
		EOSToken:         int(int32(info.eos_token)),
		NumParameters:    uint64(info.num_parameters),
		WeightBytes:      uint64(info.weight_bytes),
		KVCacheBytes:     uint64(info.kv_cache_bytes),
		NumKVBlocks:      int(info.num_kv_blocks),
		KVBlockSize:      int(info.kv_block_size),
		Device:           device,
		DeviceIndex:      int(info.device_index),
		MaxNumSeqs:       int(info.max_num_seqs),
		MaxBatchedTokens: int(info.max_batched_tokens),
	}, nil
}

// Stats are counters since the engine opened, and gauges of now.
type Stats struct {
	Steps           uint64 // forward passes
	PromptTokens    uint64 // prompt tokens computed
	CachedTokens    uint64 // prompt tokens taken over from the prefix cache
	GeneratedTokens uint64
	Preemptions     uint64 // sequences that had to give their KV blocks back
	StepMicros      uint64 // microseconds spent in passes
	Running         int    // sequences that run
	Waiting         int    // requests that wait
	KVBlocksTotal   int
	KVBlocksUsed    int    // of these, held by sequences or pinned
	KVBlocksPinned  int    // promised to pinned prompts
	CacheQueries    uint64 // tokens looked up in the prefix cache
	CacheHits       uint64 // of these, found
	CacheEvictions  uint64 // blocks that the prefix cache lost
}

// MetricsText returns the statistics and more in the text format of Prometheus.
func (e *Engine) MetricsText() (string, error) {
	return sizedText(e, 16<<10, func(to *byte, room C.size_t, needed *C.size_t, failed *C.nvllm_error) C.nvllm_status {
		return C.nvllm_metrics_text(e.native, (*C.char)(unsafe.Pointer(to)), room, needed, failed)
	})
}

// Stats reads the statistics.
func (e *Engine) Stats() (Stats, error) {
	if err := e.enter(); err != nil {
		return Stats{}, err
	}
	defer e.leave()
	var failed C.nvllm_error
	stats := C.nvllm_stats{struct_size: C.sizeof_nvllm_stats}
	if status := C.nvllm_get_stats(e.native, &stats, &failed); status != C.NVLLM_OK {
		return Stats{}, errorOf(status, &failed)
	}
	return Stats{
		Steps:           uint64(stats.steps),
		PromptTokens:    uint64(stats.prompt_tokens),
		CachedTokens:    uint64(stats.cached_tokens),
		GeneratedTokens: uint64(stats.generated_tokens),
		Preemptions:     uint64(stats.preemptions),
		StepMicros:      uint64(stats.step_time_us),
		Running:         int(stats.running),
		Waiting:         int(stats.waiting),
		KVBlocksTotal:   int(stats.kv_blocks_total),
		KVBlocksUsed:    int(stats.kv_blocks_used),
		KVBlocksPinned:  int(stats.kv_blocks_pinned),
		CacheQueries:    uint64(stats.prefix_cache_queries),
		CacheHits:       uint64(stats.prefix_cache_hits),
		CacheEvictions:  uint64(stats.prefix_cache_evictions),
	}, nil
}
