extends RefCounted
## The demo model as a GGUF file in two parts, without a tokenizer: that of a tokenizer.json beside it is needed.

const NAMES := {
	"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
	"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "input_layernorm": "attn_norm",
	"post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}
const U16 := 2
const U32 := 4
const F32 := 6
const TEXT := 8
const BF16 := 30


static func write(folder: String, to: String) -> void:
	var config: Dictionary = JSON.parse_string(FileAccess.get_file_as_string(folder + "/config.json"))
	var weights := FileAccess.get_file_as_bytes(folder + "/model.safetensors")
	var length := weights.decode_u64(0)
	var tensors: Dictionary = JSON.parse_string(weights.slice(8, 8 + length).get_string_from_utf8())
	tensors.erase("__metadata__")
	var names := tensors.keys()
	var prefix := "qwen3."
	for part in 2:
		var facts := [["split.no", U16, part], ["split.count", U16, 2], ["split.tensors.count", 5, names.size()]]
		if part == 0:
			facts += [
				["general.architecture", TEXT, "qwen3"],
				[prefix + "block_count", U32, config.num_hidden_layers],
				[prefix + "context_length", U32, config.max_position_embeddings],
				[prefix + "embedding_length", U32, config.hidden_size],
				[prefix + "feed_forward_length", U32, config.intermediate_size],
				[prefix + "attention.head_count", U32, config.num_attention_heads],
				[prefix + "attention.head_count_kv", U32, config.num_key_value_heads],
				[prefix + "attention.key_length", U32, config.head_dim],
				[prefix + "attention.value_length", U32, config.head_dim],
				[prefix + "attention.layer_norm_rms_epsilon", F32, config.rms_norm_eps],
				[prefix + "rope.freq_base", F32, config.rope_theta],
			]
		var own := names.slice(0, 30) if part == 0 else names.slice(30)
		var file := StreamPeerBuffer.new()
		file.put_data("GGUF".to_ascii_buffer())
		file.put_u32(3)
		file.put_u64(own.size())
		file.put_u64(facts.size())
		for fact in facts:
			put_text(file, fact[0])
			file.put_u32(fact[1])
			match fact[1]:
				U16: file.put_u16(fact[2])
				F32: file.put_float(fact[2])
				TEXT: put_text(file, fact[2])
				_: file.put_u32(int(fact[2]))
		var data := StreamPeerBuffer.new()
		for name: String in own:
			var shape: Array = tensors[name].shape
			var place: Array = tensors[name].data_offsets
			var bytes := weights.slice(8 + length + int(place[0]), 8 + length + int(place[1]))
			put_text(file, gguf_name(name))
			file.put_u32(shape.size())
			for i in shape.size():
				file.put_u64(int(shape[-1 - i]))
			# Norms are in F32.
			file.put_u32(0 if shape.size() == 1 else BF16)
			file.put_u64(data.get_size())
			for i in range(0, bytes.size() if shape.size() == 1 else 0, 2):
				data.put_u16(0)
				data.put_u16(bytes.decode_u16(i))
			if shape.size() > 1:
				data.put_data(bytes)
			pad(data)
		pad(file)
		file.put_data(data.data_array)
		FileAccess.open("%s-%05d-of-00002.gguf" % [to, part + 1], FileAccess.WRITE).store_buffer(file.data_array)


static func gguf_name(name: String) -> String:
	match name:
		"model.embed_tokens.weight": return "token_embd.weight"
		"model.norm.weight": return "output_norm.weight"
	var parts := name.trim_prefix("model.layers.").trim_suffix(".weight").split(".", true, 1)
	return "blk.%s.%s.weight" % [parts[0], NAMES[parts[1]]]


static func put_text(file: StreamPeerBuffer, text: String) -> void:
	file.put_u64(text.length())
	file.put_data(text.to_ascii_buffer())


static func pad(file: StreamPeerBuffer) -> void:
	while file.get_size() % 32 != 0:
		file.put_u8(0)
