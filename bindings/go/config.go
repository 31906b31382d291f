package nanovllm

// #include <nanovllm.h>
import "C"

import (
	"cmp"
	"fmt"
	"unsafe"
)

// A Device says where an engine computes.
type Device int

// The devices.
const (
	DeviceDefault Device = iota // DeviceAuto
	DeviceCPU
	DeviceCUDA
	DeviceAuto // an NVIDIA GPU if the library has kernels for it and for the model, else the CPU
)

// A DType is a data type of weights, and of a KV cache that says nothing else.
type DType int

// The data types.
const (
	DTypeAuto DType = C.NVLLM_DTYPE_AUTO // that of the model's files
	DTypeF32  DType = C.NVLLM_DTYPE_F32
	DTypeF16  DType = C.NVLLM_DTYPE_F16
	DTypeBF16 DType = C.NVLLM_DTYPE_BF16
)

// A KVCacheDType says how keys and values are stored in the KV cache.
type KVCacheDType int

// The data types of the KV cache.
const (
	KVCacheAuto KVCacheDType = C.NVLLM_KV_CACHE_AUTO // that of the weights
	KVCacheInt8 KVCacheDType = C.NVLLM_KV_CACHE_INT8 // integers of 8 bits with scales: about half the memory
)

// A LoadMode says how the weights of a model are loaded into memory.
type LoadMode int

// The load modes.
const (
	LoadMap  LoadMode = C.NVLLM_LOAD_MAP  // the files are mapped: truncating one ends the process
	LoadRead LoadMode = C.NVLLM_LOAD_READ // the files are copied: later changes to them have no effect
)

// A Quantization says how weights that are not quantized yet are quantized while an engine opens.
type Quantization int

// The quantizations.
const (
	QuantizationNone Quantization = C.NVLLM_QUANTIZATION_NONE // weights keep the form of their files
	QuantizationInt8 Quantization = C.NVLLM_QUANTIZATION_INT8 // 8 bits, in groups of 128, 64 or 32 weights
	QuantizationInt4 Quantization = C.NVLLM_QUANTIZATION_INT4 // 4 bits, in groups of 32 weights
)

// A Coding says how the weights of a part of a model are held.
type Coding int

// The codings.
const (
	CodingNone   Coding = C.NVLLM_CODING_NONE // the model has no such part
	CodingF32    Coding = C.NVLLM_CODING_F32
	CodingF16    Coding = C.NVLLM_CODING_F16
	CodingBF16   Coding = C.NVLLM_CODING_BF16
	CodingInt8   Coding = C.NVLLM_CODING_INT8 // integers of 8 bits with scales
	CodingInt4   Coding = C.NVLLM_CODING_INT4 // integers of 4 bits with scales
	CodingFP8    Coding = C.NVLLM_CODING_FP8  // E4M3 with scales
	CodingFP4    Coding = C.NVLLM_CODING_FP4  // E2M1 with scales
	CodingQ8_0   Coding = C.NVLLM_CODING_Q8_0 // this and the following are the block types of GGUF
	CodingQ4_0   Coding = C.NVLLM_CODING_Q4_0
	CodingQ4_1   Coding = C.NVLLM_CODING_Q4_1
	CodingQ5_0   Coding = C.NVLLM_CODING_Q5_0
	CodingQ5_1   Coding = C.NVLLM_CODING_Q5_1
	CodingQ4K    Coding = C.NVLLM_CODING_Q4_K
	CodingQ5K    Coding = C.NVLLM_CODING_Q5_K
	CodingQ6K    Coding = C.NVLLM_CODING_Q6_K
	CodingIQ4NL  Coding = C.NVLLM_CODING_IQ4_NL
	CodingIQ4XS  Coding = C.NVLLM_CODING_IQ4_XS
	CodingQ2K    Coding = C.NVLLM_CODING_Q2_K
	CodingQ3K    Coding = C.NVLLM_CODING_Q3_K
	CodingMXFP4  Coding = C.NVLLM_CODING_MXFP4
	CodingIQ2XXS Coding = C.NVLLM_CODING_IQ2_XXS
	CodingIQ2XS  Coding = C.NVLLM_CODING_IQ2_XS
	CodingIQ2S   Coding = C.NVLLM_CODING_IQ2_S
	CodingIQ3XXS Coding = C.NVLLM_CODING_IQ3_XXS
	CodingIQ3S   Coding = C.NVLLM_CODING_IQ3_S
	CodingIQ1S   Coding = C.NVLLM_CODING_IQ1_S
	CodingIQ1M   Coding = C.NVLLM_CODING_IQ1_M
	CodingTQ1_0  Coding = C.NVLLM_CODING_TQ1_0
	CodingTQ2_0  Coding = C.NVLLM_CODING_TQ2_0
)

// A WeightPart is how a part of a model is held.
type WeightPart struct {
	Coding Coding // that of most of its bytes
	Bytes  uint64 // its size in all ranks together
}

// check refuses values that the fields of the C API cannot represent.
func (c *Config) check() error {
	if err := cmp.Or(withoutNUL("ModelPath", c.ModelPath), withoutNUL("Rendezvous", c.Rendezvous)); err != nil {
		return err
	}
	if c.Device < DeviceDefault || c.Device > DeviceAuto {
		return &Error{Status: ErrInvalidArgument, Message: fmt.Sprintf("Device is %d, but it must be from %d to %d", c.Device, DeviceDefault, DeviceAuto)}
	}
	return c.checkRanges()
}

// native returns the struct of the C API, without what it points to.
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
	c.assign(&config)
	return config
}

func flag(on bool) C.uint32_t {
	if on {
		return 1
	}
	return 0
}

// ModelInfo has the properties of a loaded model and of the engine that runs it.
type ModelInfo struct {
	VocabSize        int          // rows of the embedding table
	MaxModelLen      int          // tokens per sequence, prompt and completion together
	NumLayers        int          //
	HiddenSize       int          // width of the residual stream
	BOSToken         int          // -1 if there is none
	EOSToken         int          // the first of the tokens that end a completion; -1 if there is none
	NumParameters    uint64       // number of weights; shared ones count once
	WeightBytes      uint64       // size of the weights in bytes
	KVCacheBytes     uint64       // size of the KV cache in bytes
	NumKVBlocks      int          // number of blocks of the KV cache
	KVBlockSize      int          // tokens per block
	Device           Device       // DeviceCPU or DeviceCUDA, whichever DeviceAuto chose
	DeviceIndex      int          // index of the GPU, of the first rank where there are several
	MaxNumSeqs       int          // maximum number of sequences that run at once
	MaxBatchedTokens int          // maximum number of new tokens per forward pass
	TensorParallel   int          // number of ranks that compute the model together, in all processes
	ProcessIndex     int          // which of the processes this is
	KVCacheDType     KVCacheDType // how keys and values are stored
	KVTokenBytes     int          // size of the KV cache per token in bytes
	EmbeddingSize    int          // numbers of an embedding with PoolingAuto; 0 for a classifier
	NumLabels        int          // labels of a classifier; 0 for other models
	HostExpertLayers int          // layers whose experts stay in host memory beside a GPU
	HostExpertBytes  uint64       // size of these experts in bytes

	Embedding   WeightPart // the embedding table
	Attention   WeightPart // the projections of attention
	FeedForward WeightPart // the projections of the feed-forward parts
	Head        WeightPart // the output head; CodingNone if the embedding table serves as the head
}

// ModelInfo returns the properties of the model.
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
		TensorParallel:   int(info.tensor_parallel_size),
		ProcessIndex:     int(info.process_index),
		KVCacheDType:     KVCacheDType(info.kv_cache_dtype),
		KVTokenBytes:     int(info.kv_token_bytes),
		EmbeddingSize:    int(info.embedding_size),
		NumLabels:        int(info.num_labels),
		HostExpertLayers: int(info.host_expert_layers),
		HostExpertBytes:  uint64(info.host_expert_bytes),
		Embedding:        WeightPart{Coding(info.embedding_coding), uint64(info.embedding_bytes)},
		Attention:        WeightPart{Coding(info.attention_coding), uint64(info.attention_bytes)},
		FeedForward:      WeightPart{Coding(info.feed_forward_coding), uint64(info.feed_forward_bytes)},
		Head:             WeightPart{Coding(info.head_coding), uint64(info.head_bytes)},
	}, nil
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
	return copyStats(&stats), nil
}
