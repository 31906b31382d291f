//! Encoders give the states and scores of transformers, the same for a text alone and among others, and refuse what they cannot do.
//!
//! `tests/golden/make_encoders.py` made the folders and says what is in them.

use crate::driver;
use crate::reference;
use crate::scratch_folder;

use base::TokenId;
use driver::{dtype_of, golden};
use engine::options::EngineOptions;
use engine::output::{Finish, Output};
use engine::sampling_params::{Pooling, SamplingParams};
use engine::{Engine, Prompt};
use formats::DType;
use reference::distance;
use runner::Device;
use safetensors::SafeTensors;
use scratch_folder::Folder;
use serde_json::json;
use std::ops::ControlFlow;
use std::path::Path;
use std::{fs, iter};

const CASES: &[&str] = &[
    "bert-bf16-tanh",
    "bert-f32",
    "bert-f32-classifier",
    "bert-f32-token-classifier",
    "gemma3_text-bf16",
    "gemma3_text-f32",
    "gte-bf16-no-types",
    "gte-f32",
    "jina_embeddings_v3-f32",
    "modernbert-bf16-biased",
    "modernbert-f32",
    "modernbert-f32-classifier",
    "modernbert-f32-token-classifier",
    "nomic_bert-bf16",
    "nomic_bert-f32",
    "roberta-f32",
    "roberta-f32-narrow-classifier",
    "xlm_roberta-bf16-token-classifier",
    "xlm_roberta-f32-reranker",
];

/// A text, and what transformers makes of it.
pub struct Text {
    pub tokens: Vec<TokenId>,
    pub is_pair: bool,
    /// `[tokens, hidden]`
    pub states: Vec<f32>,
    /// `[labels]`, or empty
    pub scores: Vec<f32>,
}

pub fn texts(name: &str) -> Vec<Text> {
    texts_of(&folder(name))
}

pub fn texts_of(folder: &Path) -> Vec<Text> {
    let bytes = fs::read(folder.join("reference.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let words = |name: String| -> Vec<[u8; 4]> {
        file.tensor(&name).map_or(Vec::new(), |tensor| tensor.data().as_chunks().0.to_vec())
    };
    let numbers = |name: String| -> Vec<f32> { words(name).into_iter().map(f32::from_le_bytes).collect() };
    (0..4)
        .map(|index| Text {
            tokens: words(format!("tokens.{index}")).into_iter().map(TokenId::from_le_bytes).collect(),
            is_pair: words(format!("types.{index}")).into_iter().any(|kind| u32::from_le_bytes(kind) > 0),
            states: numbers(format!("states.{index}")),
            scores: numbers(format!("scores.{index}")),
        })
        .collect()
}

fn folder(name: &str) -> std::path::PathBuf {
    golden("encoders").join(name)
}

pub fn options(path: &Path) -> EngineOptions {
    let mut options = EngineOptions::new(path);
    options.device = Device::Cpu;
    options.num_threads = Some(2);
    options.kv_block_size = Some(4);
    options.max_num_seqs = Some(4);
    options
}

pub fn opened(options: &EngineOptions) -> Engine {
    Engine::open(options, &mut |_| ControlFlow::Continue(())).unwrap()
}

pub fn pooled(pooling: Pooling) -> SamplingParams {
    SamplingParams { pooling, ..SamplingParams::default() }
}

pub fn run(engine: &mut Engine, texts: &[&[TokenId]], params: &SamplingParams) -> Vec<Output> {
    let prompts: Vec<Prompt> = texts.iter().map(|tokens| Prompt::Tokens(tokens)).collect();
    let params: Vec<_> = iter::repeat_n(params.clone(), texts.len()).collect();
    engine.generate(&prompts, &params, &mut |_| ControlFlow::Continue(())).unwrap()
}

pub fn limit(name: &str) -> f32 {
    if dtype_of(name) == DType::F32 { 1e-5 } else { 2e-2 }
}

pub fn refusal(engine: &Engine, prompt: Prompt, params: SamplingParams) -> String {
    engine.handle().add_request(prompt, params).unwrap_err().to_string()
}

#[test]
fn every_folder_is_a_case() {
    let entries = fs::read_dir(golden("encoders")).unwrap();
    let mut found: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    found.sort();
    assert_eq!(found, CASES);
}

#[test]
fn states_are_those_of_transformers() {
    for name in CASES.iter().filter(|name| !name.contains("classifier") && !name.contains("reranker")) {
        let mut engine = opened(&options(&folder(name)));
        for (index, text) in texts(name).iter().enumerate().filter(|(_, text)| !text.is_pair) {
            let hidden = text.states.len() / text.tokens.len();
            let rows: Vec<&[f32]> = text.states.chunks_exact(hidden).collect();
            let mean: Vec<f32> =
                (0..hidden).map(|i| rows.iter().map(|row| row[i]).sum::<f32>() / rows.len() as f32).collect();
            let kinds = [(Pooling::First, rows[0]), (Pooling::Last, rows[rows.len() - 1]), (Pooling::Mean, &mean[..])];
            for (pooling, wanted) in kinds {
                let output = run(&mut engine, &[&text.tokens], &pooled(pooling)).remove(0);
                let apart = distance(&output.embedding, wanted);
                println!("{name}, text {index}, {pooling:?}: {apart:.2e} apart");
                assert!(apart <= limit(name), "{name}, text {index}, {pooling:?}: {apart} apart");
                assert!(matches!(output.finish, Some(Finish::Stop)) && output.scores.is_empty());
            }
        }
    }
}

/// One text at a time, all in one pass, several passes of some each, and one thread.
#[test]
fn a_text_has_the_same_bits_alone_and_among_others() {
    for name in CASES {
        let texts = texts(name);
        let tokens: Vec<&[TokenId]> = texts.iter().map(|text| &text.tokens[..]).collect();
        let is_classifier = !texts[0].scores.is_empty();
        let params = pooled(if is_classifier { Pooling::Auto } else { Pooling::Mean });
        let bits = |output: &Output| -> Vec<u32> {
            output.embedding.iter().chain(&output.scores).map(|v| v.to_bits()).collect()
        };
        let mut engine = opened(&options(&folder(name)));
        let alone: Vec<_> = tokens.iter().map(|tokens| bits(&run(&mut engine, &[tokens], &params)[0])).collect();
        for (threads, batched, rows, block) in [(2, 512, 4, 4), (1, 512, 4, 16), (2, 41, 2, 4), (1, 64, 3, 8)] {
            let mut options = options(&folder(name));
            options.num_threads = Some(threads);
            options.max_batched_tokens = Some(batched);
            options.max_num_seqs = Some(rows);
            options.kv_block_size = Some(block);
            let mut engine = opened(&options);
            let many: Vec<&[TokenId]> = tokens.iter().cycle().take(11).copied().collect();
            let together = run(&mut engine, &many, &params);
            for (index, output) in together.iter().enumerate() {
                assert!(!bits(output).is_empty(), "{name}, text {index}");
                assert_eq!(bits(output), alone[index % 4], "{name}, text {index}, {batched} tokens in a pass");
            }
            let stats = engine.handle().stats();
            assert_eq!((stats.kv_blocks_used, stats.preemptions, stats.cached_tokens), (0, 0, 0), "{name}");
        }
    }
}

/// Heads, columns of MLPs and of the stream are divided, and no sum is.
#[test]
fn any_number_of_ranks_gives_the_bits_of_one() {
    for name in CASES {
        let texts = texts(name);
        let tokens: Vec<&[TokenId]> = texts.iter().map(|text| &text.tokens[..]).collect();
        let params = pooled(if texts[0].scores.is_empty() { Pooling::Mean } else { Pooling::Auto });
        let mut alone: Vec<Vec<f32>> = Vec::new();
        for ranks in 1..=3 {
            let mut options = options(&folder(name));
            options.tensor_parallel_size = ranks;
            let mut engine = opened(&options);
            let outputs = run(&mut engine, &tokens, &params);
            let numbers: Vec<_> =
                outputs.into_iter().map(|output| [output.embedding, output.scores].concat()).collect();
            assert!(numbers.iter().all(|numbers| !numbers.is_empty()), "{name}");
            assert!(ranks == 1 || numbers == alone, "{name} on {ranks} ranks");
            alone = numbers;
        }
    }
}

/// The tensors of norms in folders of the first BERT models.
#[test]
fn norms_have_their_older_names() {
    let copy = Folder::copy("encoders/bert-f32", "gamma");
    copy.edit_tensors(|tensors| {
        let names: Vec<String> = tensors.keys().filter(|name| name.contains("LayerNorm")).cloned().collect();
        assert_eq!(names.len(), 14);
        for name in names {
            let older = name.replace(".weight", ".gamma").replace(".bias", ".beta");
            let tensor = tensors.remove(&name).unwrap();
            tensors.insert(older, tensor);
        }
    });
    let text = &texts("bert-f32")[0].tokens;
    let states = |path: &Path| run(&mut opened(&options(path)), &[text], &pooled(Pooling::Mean)).remove(0).embedding;
    assert_eq!(states(&copy.path), states(&folder("bert-f32")));
}

/// The formulas of sentence-transformers, for encoders and for decoders whose text is computed in several passes.
#[test]
fn every_pooling_of_a_folder_is_its_formula() {
    for (case, batched) in [("encoders/bert-f32", 64), ("qwen3-f32-embedding", 7)] {
        let copy = Folder::copy(case, "pooling");
        let module =
            |path: &str, kind: &str| json!({"path": path, "type": format!("sentence_transformers.models.{kind}")});
        let modules = json!([module("", "Transformer"), module("1_Pooling", "Pooling")]);
        fs::write(copy.file("modules.json"), modules.to_string()).unwrap();
        fs::create_dir_all(copy.file("1_Pooling")).unwrap();
        let mut options = options(&copy.path);
        options.max_batched_tokens = Some(batched);
        let text: Vec<TokenId> = (0..20).map(|i| (i * 7 + 3) % 90).collect();
        let open = |mode: serde_json::Value| {
            fs::write(copy.file("1_Pooling/config.json"), mode.to_string()).unwrap();
            opened(&options)
        };
        // The state of each token, which those behind it change in an encoder: they are taken from the text as a whole.
        let mut engine = open(json!({"pooling_mode": "mean"}));
        let mut sums: Vec<Vec<f64>> = Vec::new();
        if case.starts_with("encoders") {
            let known = texts("bert-f32").swap_remove(0);
            let hidden = known.states.len() / known.tokens.len();
            sums.extend(known.states.chunks_exact(hidden).map(|state| state.iter().map(|&v| f64::from(v)).collect()));
        } else {
            for end in 1..=text.len() {
                let state = run(&mut engine, &[&text[..end]], &pooled(Pooling::Last)).remove(0).embedding;
                sums.push(state.into_iter().map(f64::from).collect());
            }
        }
        let text = if case.starts_with("encoders") { texts("bert-f32").swap_remove(0).tokens } else { text };
        let (n, hidden) = (text.len() as f64, sums[0].len());
        let column = |i: usize| sums.iter().map(move |state| state[i]);
        let of = |formula: &dyn Fn(usize) -> f64| -> Vec<f32> { (0..hidden).map(|i| formula(i) as f32).collect() };
        let weighted = |i: usize| column(i).enumerate().map(|(place, v)| (place + 1) as f64 * v).sum::<f64>();
        let cases = [
            (json!({"pooling_mode_mean_tokens": true}), of(&|i| column(i).sum::<f64>() / n)),
            (json!({"pooling_mode_mean_sqrt_len_tokens": true}), of(&|i| column(i).sum::<f64>() / n.sqrt())),
            (json!({"pooling_mode_weightedmean_tokens": true}), of(&|i| weighted(i) / (n * (n + 1.0) / 2.0))),
            (json!({"pooling_mode": "max"}), of(&|i| column(i).fold(f64::NEG_INFINITY, f64::max))),
            (json!({"pooling_mode_lasttoken": true}), of(&|i| column(i).next_back().unwrap())),
        ];
        for (mode, wanted) in cases {
            let mut engine = open(mode.clone());
            let found = run(&mut engine, &[&text, &text[..3]], &pooled(Pooling::Auto)).remove(0).embedding;
            let apart = distance(&found, &wanted);
            assert!(apart < 1e-5, "{case}, {mode}: {apart:.1e} apart");
        }
    }
    let copy = Folder::copy("encoders/bert-f32", "two-poolings");
    let modules = json!([{"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]);
    fs::write(copy.file("modules.json"), modules.to_string()).unwrap();
    fs::create_dir_all(copy.file("1_Pooling")).unwrap();
    let both = json!({"pooling_mode_mean_tokens": true, "pooling_mode_max_tokens": true});
    fs::write(copy.file("1_Pooling/config.json"), both.to_string()).unwrap();
    let refused = Engine::open(&options(&copy.path), &mut |_| ControlFlow::Continue(())).err().unwrap().to_string();
    assert!(refused.contains("pooling_mode_mean_tokens and pooling_mode_max_tokens"), "{refused}");
}

/// The logits of classifiers, before they become scores: with the curve that changes nothing.
#[test]
fn logits_are_those_of_transformers() {
    for name in CASES.iter().filter(|name| name.contains("classifier") || name.contains("reranker")) {
        let copy = Folder::copy(&format!("encoders/{name}"), "logits");
        copy.edit_json("config.json", |config| {
            config["sentence_transformers"] = json!({"activation_fn": "torch.nn.modules.linear.Identity"});
        });
        let mut engine = opened(&options(&copy.path));
        for (index, text) in texts(name).iter().enumerate().filter(|(_, text)| !text.is_pair) {
            let output = run(&mut engine, &[&text.tokens], &pooled(Pooling::Auto)).remove(0);
            let apart = distance(&output.scores, &text.scores);
            println!("{name}, text {index}: {apart:.2e} apart");
            assert!(apart <= limit(name), "{name}, text {index}: {:?} and {:?}", output.scores, text.scores);
            assert!(output.embedding.is_empty());
        }
    }
}

/// One score per label and token, in the order of tokens.
#[test]
fn each_token_has_the_probabilities_of_its_labels() {
    let name = "bert-f32-token-classifier";
    let mut engine = opened(&options(&folder(name)));
    for text in texts(name).into_iter().filter(|text| !text.is_pair) {
        let scores = run(&mut engine, &[&text.tokens], &pooled(Pooling::Auto)).remove(0).scores;
        assert_eq!((scores.len(), text.scores.len()), (3 * text.tokens.len(), 3 * text.tokens.len()));
        for (scores, logits) in scores.chunks(3).zip(text.scores.chunks(3)) {
            let total: f32 = logits.iter().map(|logit| logit.exp()).sum();
            let wanted: Vec<f32> = logits.iter().map(|logit| logit.exp() / total).collect();
            assert!(distance(scores, &wanted) < 1e-5, "{scores:?} and {wanted:?}");
        }
    }
    let pooled_by = |pooling| refusal(&engine, Prompt::Tokens(&[5, 6]), pooled(pooling));
    assert!(pooled_by(Pooling::Mean).contains("the model is a classifier and gives scores"));
    let labels = &engine.handle().model_info().pooled.scores.as_ref().unwrap().labels;
    assert_eq!(labels, &["O", "B-PER", "I-PER"]);
}

#[test]
fn scores_are_probabilities() {
    let sums = |name: &str| -> Vec<f32> {
        let mut engine = opened(&options(&folder(name)));
        let score = |text: Text| run(&mut engine, &[&text.tokens], &pooled(Pooling::Auto)).remove(0).scores;
        texts(name).into_iter().map(score).map(|scores| scores.iter().sum()).collect()
    };
    assert!(sums("bert-f32-classifier").iter().all(|sum| (sum - 1.0).abs() < 1e-5));
    assert!(sums("xlm_roberta-f32-reranker").iter().all(|sum| *sum > 0.0 && *sum < 1.0));
    let text = &texts("xlm_roberta-f32-reranker")[0];
    let mut engine = opened(&options(&folder("xlm_roberta-f32-reranker")));
    let score = run(&mut engine, &[&text.tokens], &pooled(Pooling::Auto))[0].scores[0];
    assert!((score - 1.0 / (1.0 + (-text.scores[0]).exp())).abs() < 1e-5);
}

/// What a folder of sentence-transformers says.
#[test]
fn modules_say_how_a_text_is_pooled() {
    let name = "bert-f32";
    let copy = Folder::copy(&format!("encoders/{name}"), "modules");
    let module = |path: &str, kind: &str| json!({"path": path, "type": format!("sentence_transformers.models.{kind}")});
    let write = |file: &str, value: serde_json::Value| {
        let path = copy.path.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, value.to_string()).unwrap();
    };
    let texts = texts(name);
    let text = &texts[0].tokens;
    let auto = pooled(Pooling::Auto);
    let refused = |copy: &Folder| Engine::open(&options(&copy.path), &mut |_| ControlFlow::Continue(())).err();
    assert!(
        refusal(&opened(&options(&copy.path)), Prompt::Tokens(text), auto.clone())
            .contains("the model does not say how its states are pooled")
    );
    write("modules.json", json!([module("", "Transformer"), module("1_Pooling", "Pooling")]));
    assert!(refused(&copy).unwrap().to_string().contains("1_Pooling"), "the folder of the module is missing");
    write("1_Pooling/config.json", json!({"word_embedding_dimension": 64, "pooling_mode_mean_tokens": true}));
    let raw = run(&mut opened(&options(&copy.path)), &[text], &auto).remove(0).embedding;
    let mean = run(&mut opened(&options(&folder(name))), &[text], &pooled(Pooling::Mean)).remove(0).embedding;
    assert_eq!(raw, mean);

    write(
        "modules.json",
        json!([module("", "Transformer"), module("1_Pooling", "Pooling"), module("2_Normalize", "Normalize")]),
    );
    let mut engine = opened(&options(&copy.path));
    let length = |v: &[f32]| v.iter().map(|v| v * v).sum::<f32>().sqrt();
    let normalized = run(&mut engine, &[text], &auto).remove(0).embedding;
    assert!((length(&normalized) - 1.0).abs() < 1e-6);
    let small = SamplingParams { embedding_dimensions: Some(16), ..auto.clone() };
    let small = run(&mut engine, &[text], &small).remove(0).embedding;
    assert!(small.len() == 16 && (length(&small) - 1.0).abs() < 1e-6);
    let scaled: Vec<f32> = normalized[..16].iter().map(|v| v / length(&normalized[..16])).collect();
    assert!(distance(&small, &scaled) < 1e-6);
    for dimensions in [0, 65] {
        let params = SamplingParams { embedding_dimensions: Some(dimensions), ..auto.clone() };
        let said = refusal(&engine, Prompt::Tokens(text), params);
        assert_eq!(
            said,
            format!(
                "embedding_dimensions is {dimensions}, and the embeddings of the model have 64 numbers, but must be from 1 to the numbers of an embedding, or 0 for all"
            )
        );
    }

    // Longer texts are refused by what the folder says, unless they are to be cut. States as they are have no such limit.
    write("sentence_bert_config.json", json!({"max_seq_length": 12, "do_lower_case": false}));
    let mut engine = opened(&options(&copy.path));
    let said = refusal(&engine, Prompt::Tokens(&text[..13]), auto.clone());
    let words = "the text has 13 tokens, but max_seq_length of the model's folder is 12, and the model computes a text whole: \
                 set truncate_prompt_tokens to cut it";
    assert_eq!(said, words);
    let cut = SamplingParams { truncation: Some(u32::MAX), ..auto.clone() };
    assert_eq!(run(&mut engine, &[text], &cut)[0].embedding, run(&mut engine, &[&text[..12]], &auto)[0].embedding);
    assert_eq!(run(&mut engine, &[text], &pooled(Pooling::Mean))[0].prompt_tokens, 40);
    let generating = SamplingParams { truncation: Some(5), ..SamplingParams::default() };
    let said = opened(&options(&golden("qwen3-f32-embedding"))).handle().add_request(Prompt::Tokens(text), generating);
    let words = "truncate_prompt_tokens is 5, but must be 0 for a request that generates tokens";
    assert_eq!(said.unwrap_err().to_string(), words);
    write("sentence_bert_config.json", json!({"max_seq_length": null}));

    // A linear layer behind the pooling: the first 24 numbers, in turn.
    let mut weight = vec![0.0f32; 24 * 64];
    (0..24).for_each(|i| weight[i * 64 + 23 - i] = 2.0);
    let bytes: Vec<u8> = weight.iter().flat_map(|v| v.to_le_bytes()).collect();
    let view = safetensors::tensor::TensorView::new(safetensors::Dtype::F32, vec![24, 64], &bytes).unwrap();
    fs::create_dir_all(copy.path.join("2_Dense")).unwrap();
    safetensors::serialize_to_file([("linear.weight", view)], None, &copy.path.join("2_Dense/model.safetensors"))
        .unwrap();
    write(
        "2_Dense/config.json",
        json!({"in_features": 64, "out_features": 24, "bias": false, "activation_function": "torch.nn.modules.linear.Identity"}),
    );
    write(
        "modules.json",
        json!([module("", "Transformer"), module("1_Pooling", "Pooling"), module("2_Dense", "Dense")]),
    );
    let dense = run(&mut opened(&options(&copy.path)), &[text], &auto).remove(0).embedding;
    let wanted: Vec<f32> = raw[..24].iter().rev().map(|v| 2.0 * v).collect();
    assert!(dense.len() == 24 && distance(&dense, &wanted) < 1e-6);

    write("1_Pooling/config.json", json!({"pooling_mode": "attention"}));
    assert!(refused(&copy).unwrap().to_string().contains("attention"));
    write("1_Pooling/config.json", json!({"pooling_mode_lasttoken": true}));
    write("modules.json", json!([module("", "Transformer"), module("1_Pooling", "WordWeights")]));
    assert!(refused(&copy).unwrap().to_string().contains("WordWeights"));
    write("modules.json", json!([module("../elsewhere", "Pooling")]));
    assert!(refused(&copy).unwrap().to_string().contains("../elsewhere"));
}

#[test]
fn what_an_encoder_cannot_do_is_refused() {
    let engine = opened(&options(&folder("bert-f32")));
    let token = [5];
    let generated = refusal(&engine, Prompt::Tokens(&token), SamplingParams::default());
    assert!(generated.contains("the model has no head and generates nothing"), "{generated}");
    let mean = pooled(Pooling::Mean);
    assert_eq!(
        refusal(&engine, Prompt::Tokens(&[]), mean.clone()),
        "the prompt has no tokens, but at least one is needed"
    );
    let long = [5; 65];
    assert_eq!(
        refusal(&engine, Prompt::Tokens(&long), mean.clone()),
        "the text has 65 tokens, but max_model_len is 64, and the model computes a text whole: set truncate_prompt_tokens to cut it"
    );
    assert!(refusal(&engine, Prompt::Pair("a", "b"), mean.clone()).contains("no scores of pairs of texts"));
    let mut short = options(&folder("bert-f32"));
    short.max_batched_tokens = Some(50);
    assert_eq!(
        refusal(&opened(&short), Prompt::Tokens(&long[..51]), mean.clone()),
        "the text has 51 tokens, but max_batched_tokens is 50, and the model computes a text whole: set truncate_prompt_tokens to cut it"
    );
    // All 64 positions are there, and those of RoBERTa but for the two that pad.
    let mut whole = opened(&options(&folder("bert-f32")));
    assert_eq!(run(&mut whole, &[&long[..64]], &mean)[0].embedding.len(), 64);
    let roberta = opened(&options(&folder("roberta-f32")));
    assert!(refusal(&roberta, Prompt::Tokens(&long[..63]), mean.clone()).contains("max_model_len is 62"));
    let classifier = opened(&options(&folder("bert-f32-classifier")));
    assert!(refusal(&classifier, Prompt::Tokens(&token), mean).contains("the model is a classifier"));
    let decoder = opened(&options(&golden("qwen3-f32-embedding")));
    assert!(
        refusal(&decoder, Prompt::Tokens(&token), pooled(Pooling::First)).contains("pooling of the first token needs")
    );
}

/// A tokenizer in which token 50 is spelled w50, and that joins texts as BERT does.
fn tokenizer([begin, middle, end]: [TokenId; 3]) -> serde_json::Value {
    let vocab: serde_json::Map<String, serde_json::Value> = (0..110).map(|id| (format!("w{id}"), json!(id))).collect();
    let special = |id: TokenId, kind: u32| json!({"SpecialToken": {"id": format!("s{id}"), "type_id": kind}});
    let text = |name: &str, kind: u32| json!({"Sequence": {"id": name, "type_id": kind}});
    let ids = |id: TokenId| json!({"id": format!("s{id}"), "ids": [id], "tokens": [format!("w{id}")]});
    let specials: serde_json::Map<_, _> =
        [begin, middle, end].map(|id| (format!("s{id}"), ids(id))).into_iter().collect();
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null, "lowercase": true},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [special(begin, 0), text("A", 0), special(end, 0)],
            "pair": [special(begin, 0), text("A", 0), special(middle, 0), text("B", 1), special(end, 1)],
            "special_tokens": specials,
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
        "model": {
            "type": "WordPiece", "unk_token": "w0", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
            "vocab": vocab,
        },
    })
}

/// The pair of the reference, as its texts are spelled.
#[test]
fn a_pair_of_texts_has_the_score_of_transformers() {
    let name = "bert-f32-classifier";
    let copy = Folder::copy(&format!("encoders/{name}"), "pair");
    copy.edit_json("config.json", |config| {
        config["sentence_transformers"] = json!({"activation_fn": "torch.nn.modules.linear.Identity"});
    });
    let texts = texts(name);
    let pair = texts.iter().find(|text| text.is_pair).unwrap();
    let tokens = &pair.tokens;
    let spelled = |tokens: &[TokenId]| tokens.iter().map(|token| format!("W{token}")).collect::<Vec<_>>().join(" ");
    let json = tokenizer([tokens[0], tokens[8], tokens[22]]);
    fs::write(copy.file("tokenizer.json"), json.to_string()).unwrap();
    let mut engine = opened(&options(&copy.path));
    let (first, second) = (spelled(&tokens[1..8]), spelled(&tokens[9..22]));
    let prompts = [Prompt::Pair(&first, &second), Prompt::Text(&first), Prompt::Tokens(tokens)];
    let params = vec![pooled(Pooling::Auto); 3];
    let outputs = engine.generate(&prompts, &params, &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(outputs[0].prompt_tokens, 23);
    let apart = distance(&outputs[0].scores, &pair.scores);
    assert!(apart < 1e-5, "{:?} and {:?}", outputs[0].scores, pair.scores);
    assert_eq!(outputs[1].prompt_tokens, 9, "the tokens that begin and end a text are added");
    assert!(distance(&outputs[2].scores, &pair.scores) > 1e-2, "without types it is another text");
    // A text of nothing has the tokens around it.
    let empty = engine.generate(&[Prompt::Text("")], &params[..1], &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(empty[0].prompt_tokens, 2);
    let long = "w5 ".repeat(70);
    let said = refusal(&engine, Prompt::Text(&long), params[0].clone());
    assert_eq!(
        said,
        "the text has 72 tokens, but max_model_len is 64, and the model computes a text whole: set truncate_prompt_tokens to cut it"
    );
    let said = refusal(&engine, Prompt::Pair(&long[..120], &long), params[0].clone());
    assert!(said.contains("the model computes a text whole"), "{said}");

    // Cut, it is the text whose tokens fit beside those around it. Of a pair, the longer text is cut.
    let cut = |truncation| SamplingParams { truncation: Some(truncation), ..params[0].clone() };
    let mut scores = |prompt: Prompt, params: SamplingParams| {
        let output = engine.generate(&[prompt], &[params], &mut |_| ControlFlow::Continue(())).unwrap().remove(0);
        (output.prompt_tokens, output.scores)
    };
    let words = |count: usize| "w5 ".repeat(count);
    assert_eq!(scores(Prompt::Text(&long), cut(u32::MAX)), scores(Prompt::Text(&words(62)), params[0].clone()));
    assert_eq!(scores(Prompt::Text(&long), cut(10)), scores(Prompt::Text(&words(8)), params[0].clone()));
    assert_eq!(scores(Prompt::Text(&words(3)), cut(10)), scores(Prompt::Text(&words(3)), params[0].clone()));
    assert_eq!(
        scores(Prompt::Pair(&first, &long), cut(33)),
        scores(Prompt::Pair(&first, &words(23)), params[0].clone()),
        "30 tokens beside the three around them, of which the first text has 7"
    );
    assert_eq!(
        scores(Prompt::Pair(&long, &long), cut(12)),
        scores(Prompt::Pair(&words(4), &words(5)), params[0].clone())
    );
    assert_eq!(scores(Prompt::Tokens(&[5; 80]), cut(u32::MAX)), scores(Prompt::Tokens(&[5; 64]), params[0].clone()));
    let said = refusal(&engine, Prompt::Text(&long), cut(1));
    let words = "truncate_prompt_tokens is 1, and 2 tokens stand around a text, but must be 0, or at least the number of these tokens";
    assert_eq!(said, words);
}
