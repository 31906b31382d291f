#!/bin/sh
# Checks that the tests notice mistakes: each mutant is one wrong line in the library, and a test that is named beside it must fail.
#   mutants.sh            all mutants
#   mutants.sh NAME...    these mutants
#   mutants.sh --list     their names, and whether each line still occurs exactly once
#
# Everything happens in target/mutants, in a copy of the tree with a target folder of its own: the caller's files are never
# changed. A mutant that compiles and passes its tests is *missed*, and a failure; so is one that does not compile, or whose line
# has changed. The library is compiled with few optimizations, which change no result.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
work=$root/target/mutants
tree=$work/tree

# The longest that the tests of a mutant may take: one that makes them hang is caught too.
SECONDS_MAX=300

fail() {
    echo "mutants.sh: $*" >&2
    exit 1
}

# Calls `mutant NAME FILE TESTS OLD NEW` for each: `OLD` occurs exactly once in FILE, and TESTS is the name of a file in tests.
all_mutants() {
    # What a family's description says.
    mutant norm_eps_ignored src/model/standard.rs golden \
        '("rms_norm_eps")?.unwrap_or(1e-6)' '("rms_norm_eps")?.map_or(1e-6, |_| 1e-6)'
    mutant norm_eps_times_10 src/model/standard.rs golden \
        '?.unwrap_or(1e-6) as f32' '?.unwrap_or(1e-6) as f32 * 10.0'
    mutant attention_scale_of_shared_width src/model/standard.rs golden \
        'scale: 1.0 / (head_dim as f32).sqrt()' 'scale: 1.0 / (self.shared_width() as f32).sqrt()'
    mutant tied_head_for_all src/model/standard.rs golden \
        '("tie_word_embeddings")? == Some(true)' '("tie_word_embeddings")?.is_some()'
    mutant rope_theta_ignored src/model/rope.rs golden \
        '(Some(theta), _) | (None, Some(theta)) => theta,' '(Some(theta), _) | (None, Some(theta)) => theta.min(10_000.0),'
    mutant rope_linear_factor src/model/rope.rs golden \
        'plain.iter().map(|f| f / factor as f32)' 'plain.iter().map(|f| f / factor.sqrt() as f32)'
    mutant rope_llama3_blend_reversed src/model/rope.rs golden \
        '(1.0 - smooth) * f / factor + smooth * f' 'smooth * f / factor + (1.0 - smooth) * f'
    mutant rope_yarn_scale src/model/rope.rs golden \
        '(scaled.collect(), attention_factor as f32)' '(scaled.collect(), attention_factor.sqrt() as f32)'
    mutant window_one_longer src/compute/attention_spec.rs golden \
        '(position + 1).saturating_sub(window)' 'position.saturating_sub(window)'
    # What the families say.
    mutant window_pattern_shifted src/model/standard.rs golden \
        '!(layer + 1).is_multiple_of(given.unwrap_or(interval))' '!layer.is_multiple_of(given.unwrap_or(interval))'
    mutant windows_in_the_first_layers src/model/families/qwen2.rs golden \
        '|layer| layer >= first' '|layer| layer < first'
    mutant windows_in_every_layer_of_qwen2_moe src/model/families/qwen2_moe.rs golden \
        'layer < first && layer.is_multiple_of(2)' 'layer < first'
    mutant minimax_rotates_whole_heads src/model/families/minimax_m2.rs golden \
        'count as f64 / fields.count("head_dim")? as f64' '(count as f64).min(1.0)'
    mutant trinity_without_scaled_embeddings src/model/families/afmoe.rs golden \
        '(standard.hidden as f64).sqrt() as f32' '(standard.hidden as f64).powi(0) as f32'
    mutant trinity_rotates_all_layers src/model/families/afmoe.rs golden \
        'attention.rope.filter(|_| window.is_some())' 'attention.rope.filter(|_| window.is_some() || true)'
    mutant gemma_gates_are_exact src/model/families/gemma.rs golden \
        'Some("gelu" | "gelu_pytorch_tanh") => MlpForm::gated(Activation::GeluTanh)' 'Some("gelu" | "gelu_pytorch_tanh") => MlpForm::gated(Activation::Silu)'
    mutant olmo_norms_keep_the_mean src/model/families/olmo.rs golden \
        'kind: NormKind::Layer,' 'kind: NormKind::Rms,'
    mutant stablelm_parts_in_turn src/model/families/stablelm.rs golden \
        'Some(true) => layer.in_parallel(norms)' 'Some(true) => layer.with_norms(norms)'
    mutant windows_without_their_switch src/model/standard.rs golden \
        'if is_on { self.windows(fields, slides) }' 'if !is_on { self.windows(fields, slides) }'
    mutant score_scale_without_root src/model/standard.rs golden \
        'fields.positive("query_pre_attn_scalar")?.sqrt()' 'fields.positive("query_pre_attn_scalar")?'
    mutant gemma_ropes_swapped src/model/families/gemma3.rs golden \
        'if window.is_some() { SLIDING } else { FULL }' 'if window.is_some() { FULL } else { SLIDING }'
    mutant gemma_norms_plain src/model/families/gemma2.rs golden \
        'Standard::read(fields)?.with_norms_plus_one()' 'Standard::read(fields)?'
    mutant granite_residual_multiplier_ignored src/model/families/granite.rs golden \
        'with_scale(fields.factor("residual_multiplier")?)' 'with_scale(fields.factor("residual_multiplier")?.max(1.0))'
    mutant granite_logits_multiplied src/model/families/granite.rs golden \
        'scale: 1.0 / fields.factor("logits_scaling")?' 'scale: fields.factor("logits_scaling")?'
    mutant roberta_rows_from_the_padding src/model/families/bert.rs encoders \
        'spec(fields, padding + 1)' 'spec(fields, padding)'
    mutant modernbert_norm_of_the_first_layer src/model/families/modernbert.rs encoders \
        'if index == 0 {' 'if index == usize::MAX {'
    mutant modernbert_whole_window_on_both_sides src/model/families/modernbert.rs encoders \
        'fields.count("local_attention")? / 2 + 1' 'fields.count("local_attention")? + 1'
    mutant modernbert_ropes_swapped src/model/families/modernbert.rs encoders \
        'if slides { SLIDING } else { FULL }' 'if slides { FULL } else { SLIDING }'
    mutant sum_is_read_without_its_norm src/model/layer.rs encoders \
        'stream.become_normed();' ''
    mutant gguf_word_continues_without_its_mark src/formats/source/gguf/tokenizer/wordpiece.rs gguf_text \
        '_ => format!("{CONTINUES}{text}").into(),' '_ => text.into(),'
    mutant gguf_pair_of_roberta_with_one_token src/formats/source/gguf/tokenizer/frame.rs gguf_text \
        'let between = end.into_iter().chain(second).collect();' 'let _ = second; let between = end.into_iter().collect();'
    mutant gguf_modernbert_windows_in_the_wrong_layers src/model/gguf/families/encoders.rs encoders_in_gguf \
        '.map(|layer| !layer.is_multiple_of(interval)).collect()' '.map(|layer| layer.is_multiple_of(interval)).collect()'
    mutant gte_gate_first src/model/feed_forward/mlp.rs encoders \
        'let own = vec![width + own.start..width + own.end, own.clone()];' 'let own = vec![own.clone(), width + own.start..width + own.end];'
    mutant tokens_are_scored_in_the_wrong_order src/engine/schedule/scheduler.rs classifiers \
        'for &token in tokens {' 'for &token in tokens.iter().rev() {'
    mutant weighted_mean_from_zero src/compute/batch.rs encoders \
        'PoolKind::WeightedMean => n as f64 * (n + 1) as f64 / 2.0,' 'PoolKind::WeightedMean => n as f64 * (n - 1) as f64 / 2.0,'
    mutant second_text_of_the_first_type src/compute/table_rows.rs encoders \
        'token_types.get(token).copied().unwrap_or(0)' 'token_types.get(token).copied().map_or(0, |_| 0)'
    mutant ernie_rotates_halves src/model/families/ernie4_5.rs golden \
        'Standard::read(fields)?.with_neighbours()' 'Standard::read(fields)?'
    mutant sinks_do_not_count src/compute/cpu/attention/mod.rs ops_agree \
        '(sinks[head], 1.0)' '(sinks[head], 0.0)'
    mutant gpt_oss_up_without_one src/compute/cpu/activate_mul.rs golden \
        'lanes.mul(activated, lanes.add(up, lanes.splat(1.0)))' 'lanes.mul(activated, up)'
    mutant gpt_oss_gates_one_after_the_other src/model/feed_forward/experts.rs golden \
        'gate_up = gate_up.iter().map(|parts| parts.iter().flat_map(HostMatrix::by_turns).collect()).collect();' ''
    mutant gpt_oss_router_without_bias src/model/families/gpt_oss.rs golden \
        'Logits { bias: Bias::Added, ..Logits::PLAIN }' 'Logits::PLAIN'
    mutant gemma_router_reads_what_experts_read src/model/feed_forward/experts.rs golden \
        'ops::norm(backend, normed, stream, norm.weights());' 'ops::norm(backend, normed, x, norm.weights());'
    mutant gemma_experts_not_scaled src/compute/cpu/route.rs golden \
        '*weight *= scales[expert as usize]' '*weight *= scales[expert as usize].signum()'
    mutant gemma_branches_share_a_norm src/model/families/gemma4/experts.rs golden \
        'SublayerNorms::around(norm), ..Branch' 'SublayerNorms::after(norm), ..Branch'
    mutant hunyuan_norm_before_rope src/model/families/hunyuan.rs golden \
        'order: NormOrder::AfterRope }' 'order: NormOrder::BeforeRope }'
    mutant exaone_rotates_all_layers src/model/families/exaone4.rs golden \
        'window.is_some() || !has_windows' 'window.is_some() || true'
    mutant cohere_rotates_all_layers src/model/families/cohere2.rs golden \
        'attention.rope.filter(|_| window.is_some())' 'attention.rope.filter(|_| window != Some(0))'
    mutant glimmer_norms_share_an_epsilon src/model/families/muse_glimmer.rs golden \
        'fields.factor("post_norm_eps")?' 'fields.factor("rms_norm_eps")?'
    mutant glimmer_counts_from_the_first src/model/families/muse_glimmer.rs golden \
        '!(standard.layers - 1 - layer).is_multiple_of' '!(layer + 1).is_multiple_of'
    mutant glimmer_queries_not_scaled src/model/families/muse_glimmer.rs golden \
        'qk_scale * attention.scores.scale' 'qk_scale.signum() * attention.scores.scale'
    mutant delta_gate_before_the_query src/model/attention.rs golden \
        '2 * head + kind' '2 * head + 1 - kind'
    mutant delta_of_the_next_key_head src/compute/cpu/gated_delta.rs ops_agree \
        'let key_head = heads.key_head(head);
            let (rate' 'let key_head = head % heads.keys;
            let (rate'
    mutant delta_tiled_as_grouped src/model/gguf/families.rs gguf \
        'value_order: ValueOrder::Tiled' 'value_order: ValueOrder::Grouped'
    mutant bamba_attention_in_other_layers src/model/families/bamba.rs golden \
        'with_attention.contains(&index)' 'with_attention.contains(&(index + 1))'
    mutant bamba_rotates_whole_heads src/model/families/bamba.rs golden \
        '"partial_rotary_factor": 0.5' '"partial_rotary_factor": 1.0'
    mutant infinity_of_python_refused src/model/config.rs golden \
        'written.extend(b"\"Infinity\"")' 'written.extend(WORD)'
    mutant scan_gate_after_the_norm src/model/recurrent/state_space.rs golden \
        'scale, order: *order, head_dim' 'scale, order: compute::GateOrder::AfterNorm, head_dim'
    mutant scan_norm_over_all_groups src/model/recurrent/state_space.rs golden \
        'self.shape.head_width() / self.shape.groups' 'self.shape.head_width()'
    mutant scan_steps_not_scaled src/model/recurrent/state_space.rs golden \
        'step_scale: self.scales.step' 'step_scale: self.scales.step.max(1.0)'
    mutant scan_gates_of_norms_not_scaled src/model/recurrent/state_space.rs golden \
        '(norm, self.scales.gate)' '(norm, self.scales.gate.max(1.0))'
    mutant scan_gates_not_scaled src/model/recurrent/state_space.rs golden \
        'ScanGate::Silu { scale: self.scales.gate }' 'ScanGate::Silu { scale: self.scales.gate.max(1.0) }'
    mutant scan_gates_where_the_steps_are src/compute/unfused.rs golden \
        'first: layer.first_gate() }, Some' 'first: layer.heads.heads }, Some'
    mutant scan_state_in_that_of_the_convolution src/compute/unfused.rs golden \
        '(states, layer.scan_at(at))' '(states, at)'
    mutant scan_b_and_c_scaled_alike src/model/recurrent/state_space.rs golden \
        '(c, of_groups.len())' '(b, of_groups.len())'
    mutant falcon_input_scaled_once src/model/families/falcon_h1.rs golden \
        'scale * of_input * of_input * of_keys' 'scale * of_input * of_keys'
    mutant falcon_values_not_scaled src/model/families/falcon_h1.rs golden \
        'of_input * fields.factor("attention_out_multiplier")?' 'fields.factor("attention_out_multiplier")?'
    mutant scan_without_skip src/compute/cpu/selective_scan.rs ops_agree \
        'lanes.mul(lanes.splat(self.skip), x)' 'lanes.splat(0.0)'
    mutant short_conv_in_the_order_of_the_tensor src/model/recurrent/short_conv.rs golden \
        'vec![rows(0), rows(2), rows(1)]' 'vec![rows(0), rows(1), rows(2)]'
    mutant delta_not_scaled_by_the_strength src/compute/cpu/gated_delta.rs ops_agree \
        'lanes.mul(lanes.splat(self.beta), difference)' 'difference'
    mutant delta_read_before_the_update src/compute/cpu/gated_delta.rs ops_agree \
        '*read = lanes.fma(q, s, *read);' '*read = lanes.fma(q, lanes.mul(lanes.load(at), decay), *read);'
    mutant checkpoint_is_not_looked_for src/engine/schedule/blocks.rs engine_steps \
        'if has_state(block) && entries' 'if entries'
    # Blocks of layers with a window.
    mutant window_entries_not_looked_for src/engine/schedule/blocks.rs engine_steps \
        'has_state(block) && entries >= end - first(end)' 'has_state(block)'
    mutant window_one_block_too_short src/compute/kv_shape.rs engine_steps \
        '.saturating_add(1)).saturating_sub(self.window)' '.saturating_add(block_size)).saturating_sub(self.window)'
    mutant window_released_one_token_early src/engine/schedule/sequence.rs engine_steps \
        'release_window_before((self.table.computed() + 1)' 'release_window_before((self.table.computed() + 2)'
    mutant window_entry_stays_when_a_block_is_reused src/engine/schedule/blocks.rs engine_steps \
        'if hangs_on != NONE {' 'if hangs_on != NONE && false {'
    mutant window_blocks_not_copied_for_a_fork src/engine/schedule/sequence/window_blocks.rs beam_search \
        'copies.extend(pairs.map' 'copies.extend(pairs.take(0).map'
    mutant checkpoint_taken_while_it_is_read src/engine/schedule/blocks/state_slots.rs engine_steps \
        'state.locks == 0 && state.pins == 0 =>' 'state.pins == 0 =>'
    mutant gemma4_scores_scaled src/model/families/gemma4.rs golden \
        'AttentionSpec { window, scale: 1.0, ..attention.scores }' 'AttentionSpec { window, ..attention.scores }'
    mutant gemma4_values_not_normalized src/model/families/gemma4.rs golden \
        'value_norm: Some(standard.norm.eps)' 'value_norm: Some(standard.norm.eps).filter(|&eps| eps > 1.0)'
    mutant gemma4_streams_not_scaled src/model/families/gemma4.rs golden \
        'stream_scale: StreamScale::Stored' 'stream_scale: StreamScale::One'
    mutant gemma4_last_layer_keeps_its_window src/model/families/gemma4/layers.rs golden \
        '*last = None;' 'let _ = &last;'
    mutant gemma4_kv_heads_of_all_layers src/model/families/gemma4/layers.rs golden \
        'kv_heads.unwrap_or(own[1])' 'kv_heads.map_or(own[1], |_| own[1])'
    mutant gemma4_keys_of_the_first_layer_of_a_kind src/model/families/gemma4/layers.rs golden \
        '.rposition(|of| of == window)' '.position(|of| of == window)'
    mutant gemma4_inputs_of_the_first_layer src/model/feed_forward/layer_input.rs golden \
        'let first = layer * width + own.start;' 'let first = own.start;'
    mutant gemma4_inputs_without_the_root_of_the_width src/model/families/gemma4.rs golden \
        'table_scale: embedding_scale(fields, width)?' 'table_scale: 1.0'
    mutant gemma4_inputs_not_divided_before_the_norm src/model/layer_inputs.rs golden \
        'eps: spec.norm.eps * decoder.hidden as f32' 'eps: spec.norm.eps'
    mutant gemma4_input_before_the_mlp src/model/families/gemma4.rs golden \
        'layer.sublayers.push(' 'layer.sublayers.insert(1, '
    mutant proportional_over_the_turning_part src/model/rope.rs golden \
        'if pair < turning { f / factor as f32 }' 'if pair < turning { f.powf(rotary as f32 / (2 * turning) as f32) / factor as f32 }'
    mutant proportional_turns_all src/model/rope.rs golden \
        'let turning = (turning * rotary as f64 / 2.0) as usize;' 'let turning = (turning.ceil() * rotary as f64 / 2.0) as usize;'
    # What a mixture of experts is.
    mutant experts_of_olmoe_divided src/model/mixture.rs golden \
        'norm: is_normed.then_some(0.0)' 'norm: Some(0.0).filter(|_| is_normed || true)'
    mutant experts_of_mixtral_not_divided src/model/families/mixtral.rs golden \
        'norm: Some(0.0)' 'norm: None'
    mutant experts_in_the_layers_of_the_list src/model/mixture.rs golden \
        '&& !dense.contains(&(layer as u64))' '&& (!dense.contains(&(layer as u64)) || true)'
    mutant correction_of_experts_ignored src/model/families/lfm2_moe.rs golden \
        'Some(true) => Correction::Stored' 'Some(true) => Correction::None'
    mutant groups_of_experts_by_their_best src/model/families/glm4_moe.rs golden \
        'groups: groups(fields, &router, 2)?' 'groups: groups(fields, &router, 1)?'
    mutant groups_of_deepseek_v2_by_two src/model/families/deepseek_v2.rs golden \
        'glm4_moe::groups(fields, &router, 1)?' 'glm4_moe::groups(fields, &router, 2)?'
    mutant latents_with_the_epsilon_of_others src/model/families/deepseek_v3.rs golden \
        'const LATENT_EPS: f32 = 1e-6;' 'const LATENT_EPS: f32 = 3e-4;'
    mutant latents_not_rotated_by_neighbours src/model/families/deepseek_v3.rs golden \
        '!= Some(false);' '== Some(false);'
    mutant scores_of_yarn_not_sharpened_twice src/model/families/deepseek_v3.rs golden \
        '(sharper * sharper / ' '(sharper / '
    mutant queries_not_rotated_first src/model/latent.rs golden \
        'HeadColumns { first: nope, step: key }, HeadColumns' 'HeadColumns { first: 0, step: key }, HeadColumns'
    mutant values_of_the_next_columns src/model/weights/latent.rs golden \
        '&rows(key, value)' '&rows(0, value)'
    mutant keys_of_the_first_head src/model/weights/latent.rs gguf \
        'all[own].iter()' 'all[own].iter().map(|_| &all[0])'
    mutant values_overlap_keys src/compute/kv_shape.rs ops_agree \
        'KvValues::Stored => self.block_size * self.head_dim,' 'KvValues::Stored => self.block_size * (self.head_dim - 1),'
    mutant one_scale_for_latent_keys src/compute/cpu/attention/tile.rs ops_agree \
        'row[split..].iter_mut().for_each(|v| *v *= second);' 'row[split..].iter_mut().for_each(|v| *v *= first + 0.0 * second);'
    mutant heads_of_the_first_matrix src/compute/cpu/head_linear.rs ops_agree \
        'weight.matrix(head)' 'weight.matrix(0 * head)'
    mutant eighth_sign_left_out src/formats/weight_format/lattice.rs ops_agree \
        'bits | ((bits.count_ones() & 1) as u8) << 7' 'bits'
    mutant eighths_always_added src/formats/weight_format/lattice.rs ops_agree \
        'if is_less { -1 } else { 1 }' '1 + i8::from(is_less) - i8::from(is_less)'
    mutant digits_of_three_not_shifted src/formats/weight_format/lattice.rs ops_agree \
        'byte.wrapping_mul(*power)' 'byte.wrapping_mul(power / power)'
    mutant heads_not_placed_apart src/compute/cpu/place_heads.rs ops_agree \
        '&mut out[to.of(head)..]' '&mut out[to.of(0)..]'
    mutant ba_of_qwen3next_as_separate src/model/recurrent/gated_delta.rs gguf \
        'own: [b, a].concat() }' 'own: [a, b].concat() }'
    mutant scale_of_experts_ignored src/model/families/glm4_moe.rs golden \
        'scale: fields.factor("routed_scaling_factor")?' 'scale: fields.factor("routed_scaling_factor")?.signum()'
    mutant shared_expert_not_gated src/model/feed_forward/experts.rs golden \
        'gate: gate.is_some().then_some(&*gates)' 'gate: gate.as_ref().map(|_| &*gates).filter(|_| false)'
    mutant experts_of_the_next_number src/model/feed_forward/experts.rs golden \
        'format!("{before}{expert}.{name}")' 'format!("{before}{}.{name}", experts - 1 - expert)'
    mutant shared_mlp_of_granite_left_out src/model/families/granite_moe.rs golden \
        'shared.map(|mlp| SharedExpert' 'shared.filter(|_| false).map(|mlp| SharedExpert'
    # How the decoder is put together.
    mutant values_are_keys_after_all src/model/attention.rs golden \
        'name(if is_projected { value } else { key })' 'name(if is_projected { value } else { query })'
    mutant stream_scaled_before_the_mlp src/model/layer.rs golden \
        '(sublayer.norms.before(), 1.0)' '(sublayer.norms.before(), self.stream_scale)'
    mutant embeddings_not_normalized src/model/stream.rs golden \
        'ops::norm(backend, rows, delta, norm);' 'ops::embedding(backend, rows, table, scale, device_batch);'
    mutant attention_not_gated src/model/attention.rs golden \
        'ops::sigmoid_mul(backend, attended, gate);' 'let _ = (&attended, &gate);'
    mutant shared_expert_beside_latents_left_out src/model/families/nemotron_h/experts.rs golden \
        'vec![FeedForward::Experts(experts), FeedForward::Shared(shared)]' 'vec![FeedForward::Experts(experts), FeedForward::Shared(shared)][..1].to_vec()'
    mutant columns_of_latents_not_joined src/model/feed_forward/experts.rs parallel \
        'latent.filter(|_| is_joined).map' 'latent.filter(|_| is_joined && false).map'
    mutant queries_of_mistral4_do_not_grow src/model/families/mistral4.rs golden \
        'SelfAttention { temperature, ..deepseek_v3' 'SelfAttention { temperature: temperature.filter(|_| false), ..deepseek_v3'
    mutant groups_of_mistral4_by_their_best src/model/families/mistral4.rs golden \
        'glm4_moe::groups(fields, &router, 2)?' 'glm4_moe::groups(fields, &router, 1)?'
    mutant lfm3_without_gates src/model/families/lfm3.rs golden \
        'Some(true) => OutputGate::SigmoidPerHead' 'Some(true) => OutputGate::None'
    mutant lfm3_without_norms_behind src/model/families/lfm3.rs golden \
        'SublayerNorms::around(standard.norm)' 'SublayerNorms::before(standard.norm)'
    mutant bias_dropped src/model/linear.rs golden \
        'LayerInput::new(x, &self.weight, self.bias.as_ref())' 'LayerInput::new(x, &self.weight, None)'
    mutant norms_swapped src/model/layer.rs golden \
        'Some(sublayer) => (sublayer.norms.before()' 'Some(_) => (self.norm()'
    mutant branches_side_by_side_in_turn src/model/layer.rs golden \
        '(None, 1.0)' '(self.norms.before(), 1.0)'
    mutant query_and_key_norm_swapped src/model/attention.rs golden \
        'query: load(norm, parts.query_norm, dim, 0..dim)?' 'query: load(norm, parts.key_norm, dim, 0..dim)?'
    # The CPU's ops.
    mutant weights_of_experts_corrected src/compute/cpu/route.rs ops_agree \
        '*weight = row[expert as usize];' '*weight = row[expert as usize] + bias.map_or(0.0, |bias| bias[expert as usize]);'
    mutant of_equal_experts_the_last src/compute/cpu/route.rs ops_agree \
        'u64::from(grows) << 32 | u64::from(u32::MAX - index as u32)' 'u64::from(grows) << 32 | u64::from(u32::MAX / 2 + index as u32)'
    mutant experts_outside_the_groups src/compute/cpu/route.rs ops_agree \
        'kept >> (expert / size) & 1 == 1' 'kept >> (expert / size) & 1 <= 1'
    mutant padding_counts_for_experts src/compute/cpu/count_experts.rs ops_agree \
        'if slot != u32::MAX {' 'if slot != u32::MAX - 1 {'
    mutant one_expert_of_a_token_counts src/compute/cpu/count_experts.rs ops_agree \
        'experts.iter().for_each' 'experts.iter().take(1).for_each'
    mutant rows_of_experts_in_the_order_of_tokens src/compute/cpu/experts.rs ops_agree \
        'self.slots[row] as usize / self.shape.chosen' 'row / self.shape.chosen'
    mutant bias_of_the_first_expert src/compute/cpu/experts.rs ops_agree \
        '&bias[self.weight.place(expert) * outputs..][..outputs]' '&bias[..outputs]'
    mutant experts_of_others_added src/compute/cpu/combine.rs ops_agree \
        'if experts.contains(&(expert as usize)) {' 'if experts.end > expert as usize {'
    mutant rows_of_slots_of_the_first_rank src/compute/cpu/join_slots.rs ops_agree \
        'let from = rows_of(other);' 'let from = rows_of(other / 2);'
    mutant experts_of_ranks_from_the_first src/model/feed_forward/experts.rs parallel \
        'Mlps::on_device(backend, mlps, held.start, added)?' 'Mlps::on_device(backend, mlps, 0, added)?'
    mutant gates_of_a_shared_group_ungathered src/model/recurrent/state_space.rs parallel \
        'Some(Part { x: &*projected, first }), shares)' 'Some(Part { x: &*projected, first: 0 }), shares)'
    mutant shared_expert_left_out src/compute/cpu/combine.rs ops_agree \
        'sum = lanes.fma(gate, load(shared.x), sum);' 'let _ = (gate, load(shared.x));'
    mutant host_experts_count_as_the_first_rows src/compute/cpu/host_experts.rs ops_agree \
        'weights.copy_from_slice(&choices.weights[slots]);' 'weights.copy_from_slice(&choices.weights[..slots.len()]);'
    mutant host_experts_read_the_first_rows src/compute/cpu/host_experts.rs ops_agree \
        'zip(&choices.experts[slots.clone()])' 'zip(&choices.experts[..slots.len()])'
    mutant host_experts_of_any_shape src/compute/cpu/host_experts.rs ops_agree \
        '.position(|scratch| scratch.shape == shape)' '.position(|_| true)'
    mutant bytes_of_experts_of_their_own_missed src/model/weights/expert_bytes.rs host_experts \
        'is_stacked || begins(names.experts.before)' 'is_stacked'
    mutant reference_norm_eps src/compute/cpu/norm.rs ops_agree \
        'squares / hidden as f64 + f64::from(norm.eps)' 'squares / hidden as f64 + 10.0 * f64::from(norm.eps)'
    mutant norm_mean_of_one_less src/compute/cpu/norm.rs ops_agree \
        'squares / len as f32 + eps' 'squares / (len - 1) as f32 + eps'
    mutant layer_norm_keeps_the_mean src/compute/cpu/norm.rs ops_agree \
        'put(out, (x - mean) * scale * weight)' 'put(out, x * scale * weight)'
    mutant residual_scale_ignored src/compute/cpu/add_norm.rs ops_agree \
        'zip(delta).for_each(|(to, v)| *to = stream_scale * (*to + scale * v))' \
        'zip(delta).for_each(|(to, v)| *to = stream_scale * (*to + v))'
    mutant residual_scale_ignored_after_a_norm src/compute/cpu/add_norm.rs ops_agree \
        'post, |to, v| *to = stream_scale * (*to + scale * v))' 'post, |to, v| *to = stream_scale * (*to + v))'
    mutant stream_scale_of_the_sum_alone src/compute/cpu/add_norm.rs ops_agree \
        'post, |to, v| *to = stream_scale * (*to + scale * v))' 'post, |to, v| *to += stream_scale * scale * v)'
    mutant values_not_normalized src/compute/cpu/rope_and_cache.rs ops_agree \
        'v.iter_mut().for_each(|v| *v *= scale);' 'v.iter_mut().for_each(|v| *v *= scale.signum());'
    mutant embedding_scale_ignored src/compute/cpu/embedding.rs ops_agree \
        'out.iter_mut().for_each(|v| *v *= scale)' 'out.iter_mut().for_each(|_| ())'
    mutant silu_to_gelu src/compute/cpu/activate_mul.rs golden \
        'exp(lanes, minus)' 'exp(lanes, lanes.mul(minus, lanes.splat(1.702)))'
    mutant gelu_without_its_cube src/compute/cpu/activate_mul.rs ops_agree \
        '-0.071_354_82' '-0.0'
    mutant relu_not_squared src/compute/cpu/activate.rs ops_agree \
        'lanes.mul(v, v)' 'v'
    mutant activation_scaled_behind src/compute/cpu/activate.rs ops_agree \
        'A::activate(lanes, lanes.mul(v, scale))' 'lanes.mul(A::activate(lanes, v), scale)'
    mutant sigmoid_of_the_negative src/compute/cpu/sigmoid_mul.rs ops_agree \
        'exp(lanes, minus)' 'exp(lanes, gate)'
    mutant gates_of_the_next_head src/compute/cpu/sigmoid_mul.rs ops_agree \
        '.zip(self.gate) {' '.zip(self.gate.iter().skip(1).chain(self.gate)) {'
    mutant gates_without_bias src/compute/unfused.rs ops_agree \
        'backend.linear(gate_up, layer,' 'backend.linear(gate_up, LayerInput { bias: None, ..layer },'
    mutant sums_with_the_stream_without_bias src/compute/unfused.rs ops_agree \
        'backend.linear(delta, layer,' 'backend.linear(delta, LayerInput { bias: None, ..layer },'
    mutant adapters_behind_the_activation src/compute/unfused.rs ops_agree \
        'backend.linear(gate_up, layer,' 'backend.linear(gate_up, LayerInput { adapter: None, ..layer },'
    mutant parts_of_a_layer_in_one_place src/compute/kv_shape.rs golden \
        'part * self.shape_at(place).block_bytes()' 'part * 0'
    mutant blocks_of_parts_not_scaled src/compute/kv_shape.rs golden \
        '*slot += *slot / size * (parts - 1) * size' '*slot += *slot / size * (parts / 2) * size / 2'
    mutant adapters_not_scaled src/compute/cpu/adapter.rs ops_agree \
        'adapter.scale * factor' 'factor'
    mutant softcap_not_divided src/compute/cpu/scale_logits.rs ops_agree \
        'lanes.div(lanes.mul(v, scale), cap)' 'lanes.mul(v, scale)'
    mutant gqa_group_interleaved src/compute/cpu/attention/tile.rs golden \
        'let head = kv_head * call.group + (first + i) % call.group;' \
        'let head = kv_head + (first + i) % call.group * call.kv.kv_heads;'
    mutant causal_mask_one_short src/compute/attention_spec.rs golden \
        'Reach::Back => position + 1,' 'Reach::Back => position.max(1),'
    mutant labels_of_all_tokens_add_up src/engine/results/pooled_result.rs encoders \
        'chunks_exact_mut(self.width)' 'chunks_mut(usize::MAX)'
    mutant layers_of_classifiers_are_padded src/model/pooled_layers.rs encoders \
        'if index == last { OUTPUTS }' 'if index <= last { OUTPUTS }'
    mutant token_classifiers_without_their_head src/model/pooled.rs encoders \
        'vec![modernbert_head(fields, hidden)?, last]' 'vec![last]'
    mutant encoders_look_back src/compute/attention_spec.rs encoders \
        'Reach::Both => self.window.map_or(context,' 'Reach::Both => self.window.map_or(position + 1,'
    mutant reference_gqa_group src/compute/cpu/attention/reference.rs ops_agree \
        'let kv_head = head / (heads / kv.kv_heads);' 'let kv_head = head % kv.kv_heads;'
    mutant rope_position_off_by_one src/compute/cpu/rope_and_cache.rs golden \
        'rope.table[position * rope.rotary..]' 'rope.table[position.saturating_sub(1) * rope.rotary..]'
    mutant neighbours_reversed src/compute/cpu/rope_and_cache.rs ops_agree \
        'for (([a, b], &cos), &sin)' 'for (([b, a], &cos), &sin)'
    mutant temperature_of_keys src/compute/cpu/rope_and_cache.rs ops_agree \
        'row[..self.queries].iter_mut()' 'row[..self.queries + self.keys].iter_mut()'
    mutant norm_after_rope_is_before src/compute/cpu/rope_and_cache.rs ops_agree \
        'if let Some((NormExtent::Head(NormOrder::BeforeRope), weight, eps)) = norm' \
        'if let Some((NormExtent::Head(_), weight, eps)) = norm'
    mutant reference_whole_norm_of_keys src/compute/cpu/rope_and_cache.rs ops_agree \
        'normalize(queries, keys, NormExtent::Whole' 'normalize(queries, &mut [], NormExtent::Whole'
    mutant softcap_without_scale src/compute/cpu/attention/tile.rs ops_agree \
        'lanes.splat(scale / softcap)' 'lanes.splat(scale)'
    mutant int8_scale_of_the_key_for_the_value src/compute/cpu/attention/tile.rs ops_agree \
        '&call.value_scales(row, kv_head, start, longest)' '&call.key_scales(row, kv_head, start, longest)'
    mutant reference_int8_without_scale src/compute/cpu/attention/reference.rs ops_agree \
        'f64::from(int8::scale_of(stored))' 'f64::from(int8::scale_of(stored)).signum()'
    mutant int8_of_half_the_range src/compute/cpu/int8.rs kv_cache_int8 \
        'const GREATEST: f32 = 127.0;' 'const GREATEST: f32 = 7.0;'
    mutant reference_softcap src/compute/cpu/attention/reference.rs ops_agree \
        '(score / f64::from(cap)).tanh()' 'score.tanh()'
    # Sampling and what comes with it.
    mutant top_k_one_more src/compute/cpu/sample/mod.rs ops_agree \
        'scores.cut_at_count(lanes, sampling.top_k)' 'scores.cut_at_count(lanes, sampling.top_k + 1)'
    mutant top_p_boundary src/compute/cpu/sample/cut.rs ops_agree \
        'if weight >= *wanted' 'if weight > *wanted'
    mutant min_p_halved src/compute/cpu/sample/mod.rs ops_agree \
        'limit.min(noise::ln(sampling.min_p)' 'limit.min(noise::ln(0.5 * sampling.min_p)'
    mutant sigma_of_the_squares src/compute/cpu/sample/spread.rs ops_agree \
        'self.squares as f64 / tokens - mean * mean' 'self.squares as f64 / tokens'
    mutant sigma_without_temperature src/compute/cpu/sample/spread.rs ops_agree \
        '(reach / temperature).to_bits()' '(reach / temperature.min(0.5)).to_bits()'
    mutant xtc_of_twice_the_threshold src/compute/cpu/sample/cut.rs ops_agree \
        'score >= least && weight >= wanted' 'score >= least && weight >= 2 * wanted'
    mutant xtc_drawn_from_a_token src/compute/batch.rs ops_agree \
        '[u32::MAX, self.position,' '[0, self.position,'
    mutant dry_run_of_one_more src/engine/dry.rs engine_steps \
        '{ *run + 1 } else { 0 }' '{ *run + 2 } else { 0 }'
    mutant temperature_inverted src/compute/cpu/sample/cut.rs ops_agree \
        'lanes.div(lanes.sub(logit, greatest), temperature)' 'lanes.mul(lanes.sub(logit, greatest), temperature)'
    mutant gumbel_noise_of_next_position src/compute/cpu/sample/mod.rs ops_agree \
        'let rest = [sampling.position, ' 'let rest = [sampling.position + 1, '
    mutant gumbel_noise_of_half_a_stream src/compute/cpu/sample/mod.rs ops_agree \
        'let rest = [sampling.position, sampling.stream as u32, (sampling.stream >> 32) as u32]' \
        'let rest = [sampling.position, sampling.stream as u32, 0]'
    mutant repetition_penalty_sign src/compute/cpu/process_logits.rs asked_golden \
        'logit = if logit > 0.0' 'logit = if logit < 0.0'
    mutant presence_penalty_of_second_use src/compute/cpu/process_logits.rs asked_golden \
        'if it.uses > 0 {' 'if it.uses > 1 {'
    mutant logprobs_not_normalized src/compute/cpu/logprobs.rs asked_golden \
        '(logit - most) - log_sum' 'logit - most'
    mutant beam_score_length src/engine/api/beam_search.rs asked_golden \
        'score: score / self.length_factor(self.generated)' 'score: score / self.length_factor(self.generated + 1)'
    # What the scheduler shares.
    mutant prefix_salt_ignored src/engine/schedule/sequence/block_table.rs prefix_cache \
        'let empty = PrefixId::Empty { salt: self.salt };' 'let empty = PrefixId::Empty { salt: 0 };'
    mutant position_off_after_a_shared_prefix src/engine/schedule/sequence/block_table.rs engine_steps \
        'self.computed = shared.blocks * pool.block_size();' \
        'self.computed = shared.blocks * pool.block_size() + usize::from(shared.blocks > 0);'
}

# How often the text $2 occurs in the file $1.
occurrences() {
    OLD=$2 perl -0777 -ne 'my $n = () = /\Q$ENV{OLD}\E/g; print $n' "$1"
}

# Runs cargo on the files of tests in $1, with what else is given, in the copy of the tree.
cargo_test() {
    files=$1
    shift
    for file in $files; do
        case $file in
        ops_agree) program="--package nanovllm-compute --test ops_agree" only= ;;
        prefix_cache | engine_steps | beam_search) program="--package nanovllm-engine --test engine" only=$file:: ;;
        gguf_text) program="--package nanovllm-text --test text" only=$file:: ;;
        *) program="--package nanovllm --test library" only=$file:: ;;
        esac
        # shellcheck disable=SC2086
        (cd "$tree" && CARGO_INCREMENTAL=1 timeout "${limit:-3600}" cargo test --release --locked --target-dir "$work/target" \
            --config profile.release.opt-level=1 --config profile.release.debug=false \
            --config 'profile.release.package."*".opt-level=3' $program "$@" -- $only) || return
    done
}

# Puts the original of the mutated file back. Its time is new, so that cargo compiles it again.
restore() {
    [ -z "$mutated" ] || cp "$root/$mutated" "$tree/$mutated"
    mutated=
}

list() {
    found=$(occurrences "$2" "$4")
    printf '%-36s %-42s %-13s %s\n' "$1" "$2" "$3" "$([ "$found" = 1 ] && echo once || echo "$found times")"
    [ "$found" = 1 ] || failed=1
}

collect_tests() {
    case " $wanted " in *" $1 "* | "  ") tests="$tests $3" count=$((count + 1)) ;; esac
}

run() {
    case " $wanted " in *" $1 "* | "  ") ;; *) return 0 ;; esac
    found=$(occurrences "$tree/$2" "$4")
    [ "$found" = 1 ] || fail "$1: its line occurs $found times in $2, but must occur once: change the list in scripts/mutants.sh"
    mutated=$2
    OLD=$4 NEW=$5 perl -0777 -pi -e 's/\Q$ENV{OLD}\E/$ENV{NEW}/' "$tree/$2"
    if ! cargo_test "$3" --no-run >"$work/$1.log" 2>&1; then
        fail "$1 does not compile: see $work/$1.log"
    fi
    if limit=$SECONDS_MAX cargo_test "$3" --no-fail-fast >>"$work/$1.log" 2>&1; then
        echo "$1: MISSED by $3"
        missed=$((missed + 1))
    else
        echo "$1: caught by $3"
        caught=$((caught + 1))
    fi
    restore
}

failed=0 missed=0 caught=0 count=0 tests= mutated= wanted=$*
if [ "$wanted" = --list ]; then
    mutant() { list "$@"; }
    all_mutants
    exit "$failed"
fi

mutant() { collect_tests "$@"; }
all_mutants
[ "$count" -ge "$#" ] && [ "$count" -gt 0 ] || fail "unknown mutant in \"$wanted\": --list has their names"
tests=$(printf '%s\n' $tests | sort -u)

trap restore EXIT
trap 'exit 130' INT TERM HUP
rm -rf "$tree"
mkdir -p "$tree"
git ls-files -z --cached --others --exclude-standard | perl -0ne 'chomp; print "$_\0" if -e' |
    tar -c --null -T - | tar -x -C "$tree"
# A mutant of a run that was killed may have been compiled last.
find "$tree/src" -name '*.rs' -exec touch {} +

# A mutant counts as caught only where its tests pass without it.
cargo_test "$tests" >"$work/original.log" 2>&1 || fail "the tests fail without a mutant: see $work/original.log"
mutant() { run "$@"; }
all_mutants
echo "$caught of $count mutants caught, $missed missed"
[ "$missed" = 0 ]
