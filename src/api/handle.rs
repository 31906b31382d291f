//! The side of an engine that any thread may use.

use base::TokenId;
use base::error::Result;
use engine::output::Stats;
use engine::sampling_params::SamplingParams;
use engine::{Prompt, Waited};
use runner::ModelInfo;
use std::sync::Arc;
use std::time::{Duration, Instant};
use text::answer::{AnswerParser, ToolList};
use text::tokenizer::{AddedTokens, Encoding, SpecialTokens, SpelledTokens};

/// Adds requests, cancels them, and tells how the engine is. From any thread, also while another one is inside
/// [`Engine::step`](super::Engine::step): none of these calls waits for a pass.
///
/// ```
/// use nanovllm::{Budget, Engine, Finish, Prompt, SamplingParams};
///
/// let mut engine = Engine::open("models/demo")?;
/// let handle = engine.handle().clone();
/// let asks = std::thread::spawn(move || {
///     let params = SamplingParams { max_tokens: Some(4), ..handle.default_params() };
///     handle.add(Prompt::Text("introduce yourself"), params)
/// });
/// let id = loop {
///     engine.handle().wait(None)?;
///     engine.step(Budget::OnePass)?;
///     if let Some(output) = engine.poll()
///         && let Some(Finish::Stop | Finish::Length) = output.finish
///     {
///         break output.request_id;
///     }
/// };
/// assert_eq!(id, asks.join().unwrap()?);
/// # Ok::<(), nanovllm::Error>(())
/// ```
#[derive(Clone)]
pub struct EngineHandle(pub(super) Arc<engine::EngineHandle>);

/// A turn of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Who says it: `system`, `user`, `assistant`, or what else the model's chat template knows.
    pub role: &'a str,
    /// What is said.
    pub content: &'a str,
}

impl EngineHandle {
    /// Checks a request, queues it, and returns its id. Ids rise from 1. A request that is refused leaves no trace.
    ///
    /// Text is tokenized on this thread. Special tokens that are spelled out in it become tokens, as a chat template needs it.
    ///
    /// # Errors
    ///
    /// [`Error::Option`](base::error::Error::Option) names a value that is invalid; others say what of the prompt or the engine refuses it:
    /// `PromptEmpty`, `PromptTooLong`, `TokenOutOfRange`, `RequestTooLarge`, `QueueFull`, `PinsFull`, `NoTokenizer`, `Tokenizer`, `Structure`,
    /// `Unsupported`.
    ///
    /// ```
    /// use nanovllm::{Engine, Prompt, SamplingParams, Structure};
    /// use std::sync::Arc;
    ///
    /// let mut engine = Engine::open("models/demo")?;
    /// let refused = engine.handle().add(Prompt::Text("hello"), SamplingParams { top_p: 2.0, ..SamplingParams::default() });
    /// assert_eq!(refused.unwrap_err().to_string(), "top_p is 2, but must be above 0 and at most 1");
    ///
    /// // An answer of three digits.
    /// let digits = Some(Arc::new(Structure::Regex("[0-9]{3}".to_owned())));
    /// let outputs = engine.generate(&[Prompt::Text("hello")], &[SamplingParams { structure: digits, ..SamplingParams::default() }])?;
    /// assert_eq!(outputs[0].text.len(), 3);
    /// # Ok::<(), nanovllm::Error>(())
    /// ```
    pub fn add(&self, prompt: Prompt, params: SamplingParams) -> Result<u64> {
        self.0.add_request(prompt, params)
    }

    /// Cancels a request: each of its completions has an output whose finish is `Cancelled`, unless it has ended before.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownRequest`](base::error::Error::UnknownRequest) for an id that no request had.
    pub fn cancel(&self, request_id: u64) -> Result<()> {
        self.0.cancel(request_id)
    }

    /// Lets go of the prompt of a request with [`Pinning::Pinned`](engine::sampling_params::Pinning::Pinned): its blocks may be evicted.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownRequest`](base::error::Error::UnknownRequest) if no prompt of that request is pinned.
    pub fn release_prefix(&self, request_id: u64) -> Result<()> {
        self.0.release_prefix(request_id)
    }

    /// Sleeps until there is something to do, for at most `timeout`, or without a limit. `true`: [`Engine::step`](super::Engine::step) has work, or
    /// an output waits to be polled. `false`: the time is over, or [`wake`](Self::wake) was called.
    ///
    /// # Errors
    ///
    /// That of the engine, if it cannot be used any more.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<bool> {
        // A time that the clock cannot represent is no limit.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        self.0.wait(deadline).map(|waited| waited == Waited::Work)
    }

    /// Ends each [`wait`](Self::wait) that is in progress, and else the next one.
    pub fn wake(&self) {
        self.0.wake();
    }

    /// Whether no request waits or runs, and no output waits to be polled.
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }

    /// Counters since the engine opened, and gauges of now.
    pub fn stats(&self) -> Stats {
        self.0.stats()
    }

    /// Statistics and histograms of latencies in the text format of Prometheus.
    pub fn metrics_text(&self) -> String {
        self.0.metrics_text()
    }

    /// Facts about the model, and the sizes that the engine chose.
    pub fn model_info(&self) -> &ModelInfo {
        self.0.model_info()
    }

    /// The options that the model recommends in its generation_config.json.
    pub fn default_params(&self) -> SamplingParams {
        self.0.default_params()
    }

    /// The prompt that asks for the next turn of a conversation, by the model's chat template.
    ///
    /// # Errors
    ///
    /// As [`chat_prompt_from_json`](Self::chat_prompt_from_json).
    ///
    /// ```
    /// use nanovllm::{Engine, Message};
    ///
    /// let engine = Engine::open("models/demo")?;
    /// let prompt = engine.handle().chat_prompt(&[Message { role: "user", content: "hello" }])?;
    /// assert!(prompt.contains("hello") && prompt.len() > "hello".len());
    /// # Ok::<(), nanovllm::Error>(())
    /// ```
    pub fn chat_prompt(&self, messages: &[Message]) -> Result<String> {
        let turn = |message: &Message| serde_json::json!({ "role": message.role, "content": message.content });
        let messages = serde_json::Value::Array(messages.iter().map(turn).collect());
        self.chat_prompt_from_json(&messages.to_string(), "")
    }

    /// [`chat_prompt`](Self::chat_prompt) for conversations with tool calls, documents or other fields. `messages` is a JSON array of objects, and
    /// `options` an object or empty: `add_generation_prompt` (true if absent), `tools`, `documents`, and any variable of the template.
    ///
    /// # Errors
    ///
    /// [`Error::NoChatTemplate`](base::error::Error::NoChatTemplate), and
    /// [`Error::ChatTemplate`](base::error::Error::ChatTemplate) for JSON that the template refuses, or for more work than it may do.
    pub fn chat_prompt_from_json(&self, messages: &str, options: &str) -> Result<String> {
        self.0.chat_template()?.render(messages, options)
    }

    /// Begins to read an answer of this model: content, reasoning and tool calls, while it is written. `prompt` is what the model writes after.
    /// A request needs [`SamplingParams::special_tokens`] for it, because the markers of most models are special tokens.
    ///
    /// # Errors
    ///
    /// [`Error::ModelFile`](base::error::Error::ModelFile) when the `response_template` of the model folder cannot be used.
    ///
    /// ```
    /// use nanovllm::answer::{Event, ToolList};
    ///
    /// let engine = nanovllm::Engine::open("models/demo")?;
    /// let tools = ToolList::parse(r#"[{"name": "roll", "parameters": {"type": "object"}}]"#)?;
    /// let mut parser = engine.handle().answer_parser("<|im_start|>assistant\n", &tools)?;
    /// let events = parser.feed("<think>a die</think>I roll.<tool_call>{\"name\": \"roll\", \"arguments\": {}}</tool_call>");
    /// assert_eq!(events[0], Event::Reasoning("a die".to_owned()));
    /// let (_, message) = parser.finish();
    /// assert_eq!((message.content.as_str(), message.tool_calls[0].name.as_str()), ("I roll.", "roll"));
    /// # Ok::<(), nanovllm::Error>(())
    /// ```
    pub fn answer_parser(&self, prompt: &str, tools: &ToolList) -> Result<AnswerParser> {
        Ok(AnswerParser::new(self.0.answer_format()?, tools.json(), prompt))
    }

    /// The tokens of a user's text: what spells a special token stays text, and no token is added at the ends.
    ///
    /// # Errors
    ///
    /// [`Error::NoTokenizer`](base::error::Error::NoTokenizer), and [`Error::Option`](base::error::Error::Option) for a text of more than 16 MiB.
    ///
    /// ```
    /// let engine = nanovllm::Engine::open("models/demo")?;
    /// let tokens = engine.handle().tokenize("hello")?;
    /// assert_eq!(engine.handle().detokenize(&tokens)?, "hello");
    /// # Ok::<(), nanovllm::Error>(())
    /// ```
    pub fn tokenize(&self, text: &str) -> Result<Vec<TokenId>> {
        let encoding = Encoding { added: AddedTokens::Omit, spelled: SpelledTokens::Text };
        self.0.tokenizer()?.encode(text, encoding)
    }

    /// The text of tokens, without special ones. Bytes that are not UTF-8 become U+FFFD.
    ///
    /// # Errors
    ///
    /// [`Error::NoTokenizer`](base::error::Error::NoTokenizer), and
    /// [`Error::TokenOutOfRange`](base::error::Error::TokenOutOfRange).
    pub fn detokenize(&self, tokens: &[TokenId]) -> Result<String> {
        self.0.tokenizer()?.decode(tokens, SpecialTokens::Skip)
    }
}
