// The engine: a model, its tokenizer, its KV cache and a scheduler, stepped by its caller.
//
// Methods marked [one] are for one thread at a time, and throw Status.Busy otherwise. Methods marked [any] may be called by any thread at any
// time, also inside callbacks. Every call holds a reference to the handle, so that Dispose on another thread frees the engine when the last call
// has returned.

using System;
using System.Collections.Generic;
using System.Runtime.InteropServices;
using System.Threading;

namespace Nanovllm
{
    /// <summary>An engine, and the memory that it uses. Freed by Dispose, or by the collector.</summary>
    internal sealed class EngineHandle : SafeHandle
    {
        readonly List<GCHandle> pins;

        /// <summary>Lives until C can call it no more.</summary>
        internal Receiver<IntPtr> OutputReceiver;

        internal EngineHandle(IntPtr native, List<GCHandle> pins) : base(IntPtr.Zero, true)
        {
            this.pins = pins;
            SetHandle(native);
        }

        public override bool IsInvalid => handle == IntPtr.Zero;

        protected override bool ReleaseHandle()
        {
            Native.nvllm_engine_free(handle);
            OutputReceiver?.Dispose();
            Unpin(pins);
            return true;
        }

        internal static void Unpin(List<GCHandle> pins)
        {
            foreach (GCHandle pin in pins) pin.Free();
            pins.Clear();
        }
    }

    public sealed unsafe class Engine : IDisposable
    {
        readonly EngineHandle handle;
        readonly Inbox inbox;
        volatile bool disposed;

        /// <summary>Opens a model: a folder in the layout of Hugging Face, or a GGUF file.</summary>
        public Engine(string modelPath, EngineConfig config = null)
        {
            handle = Open(modelPath ?? throw new ArgumentNullException(nameof(modelPath)), null, config);
            inbox = new Inbox(handle);
        }

        /// <summary>Opens a model whose files are given. <paramref name="modelPath"/> is the name of a GGUF file or of a folder among them, or null
        /// for the folder that all of them are in.</summary>
        public Engine(IReadOnlyList<ModelFile> files, string modelPath = null, EngineConfig config = null)
        {
            handle = Open(modelPath, files ?? throw new ArgumentNullException(nameof(files)), config);
            inbox = new Inbox(handle);
        }

        static EngineHandle Open(string modelPath, IReadOnlyList<ModelFile> files, EngineConfig config)
        {
            Library.CheckVersion();
            config = config ?? new EngineConfig();
            var pins = new List<GCHandle>();
            bool opened = false;
            try
            {
                using (var memory = new Borrowed())
                using (var receiver = new Receiver<float>(config.Progress ?? (_ => { }), GCHandleType.Normal))
                {
                    nvllm_engine_config native;
                    nvllm_error error;
                    IntPtr engine;
                    Native.nvllm_engine_config_init(&native, (UIntPtr)sizeof(nvllm_engine_config));
                    config.Fill(&native, modelPath, memory);
                    native.progress = Callbacks.Loading;
                    native.progress_user_data = receiver.UserData;
                    int status = files == null
                        ? Native.nvllm_engine_new(&native, &engine, &error)
                        : OpenFiles(&native, files, memory, pins, &engine, &error);
                    if (status < 0) receiver.Rethrow();
                    Check.Succeeded(status, &error);
                    opened = native.load_mode != (int)LoadMode.Read;
                    return new EngineHandle(engine, opened ? pins : new List<GCHandle>());
                }
            }
            finally
            {
                if (!opened) EngineHandle.Unpin(pins);
            }
        }

        static int OpenFiles(nvllm_engine_config* config, IReadOnlyList<ModelFile> files, Borrowed memory, List<GCHandle> pins, IntPtr* engine, nvllm_error* error)
        {
            nvllm_model_file[] array = ModelFile.Array(files, memory, pins);
            fixed (nvllm_model_file* first = array)
            {
                int status = Native.nvllm_engine_new_from(config, first, (UIntPtr)array.Length, engine, error);
                ModelFile.KeepAlive(files);
                return status;
            }
        }

        /// <summary>[any] Ends all requests and waits, and frees the engine when no thread is inside a call. Disposing twice does nothing.</summary>
        public void Dispose()
        {
            disposed = true;
            WakeIfOpen();
            handle.Dispose();
        }

        // ---- properties ----

        /// <summary>[any] Properties of the model and of the engine.</summary>
        public ModelInfo GetModelInfo()
        {
            ModelInfo info = default;
            nvllm_error error;
            info.StructSize = (UIntPtr)sizeof(ModelInfo);
            Check.Succeeded(Native.nvllm_engine_model_info(handle, &info, &error), &error);
            return info;
        }

        /// <summary>[any] Counters since the engine opened, and current gauges.</summary>
        public Stats GetStats()
        {
            Stats stats = default;
            nvllm_error error;
            stats.StructSize = (UIntPtr)sizeof(Stats);
            Check.Succeeded(Native.nvllm_get_stats(handle, &stats, &error), &error);
            return stats;
        }

        /// <summary>[any] The statistics in the text format of Prometheus.</summary>
        public string GetMetricsText()
        {
            return Utf8.Written((byte* text, UIntPtr capacity, UIntPtr* needed, nvllm_error* error) => Native.nvllm_metrics_text(handle, text, capacity, needed, error));
        }

        /// <summary>[any] The numbers that a request has where its options are null: the defaults, with the sampling that the model
        /// recommends.</summary>
        public RequestOptions GetDefaultOptions()
        {
            var options = new RequestOptions();
            nvllm_request_options native;
            SetDefaults(&native);
            options.Read(&native);
            return options;
        }

        void SetDefaults(nvllm_request_options* native)
        {
            nvllm_error error;
            Native.nvllm_request_options_init(native, (UIntPtr)sizeof(nvllm_request_options));
            Check.Succeeded(Native.nvllm_default_options(handle, native, &error), &error);
        }

        nvllm_request_options* Fill(RequestOptions options, nvllm_request_options* native, Borrowed memory)
        {
            if (options == null) return null;
            SetDefaults(native);
            options.Fill(native, memory);
            return native;
        }

        // ---- requests ----

        /// <summary>[any] Queues a prompt, and returns the id of its request. Special tokens that are spelled out in it are parsed.</summary>
        public ulong AddRequest(string prompt, RequestOptions options = null)
        {
            byte[] bytes = Utf8.Bytes(prompt);
            nvllm_request_options native;
            nvllm_error error;
            ulong id;
            using (var memory = new Borrowed())
            fixed (byte* text = bytes)
            {
                int status = Native.nvllm_add_request(handle, NotNull(text), (UIntPtr)bytes.Length, Fill(options, &native, memory), &id, &error);
                Check.Succeeded(status, &error);
            }
            return id;
        }

        /// <summary>[any] Queues a prompt of tokens.</summary>
        public ulong AddRequest(ReadOnlySpan<uint> tokens, RequestOptions options = null)
        {
            nvllm_request_options native;
            nvllm_error error;
            ulong id;
            using (var memory = new Borrowed())
            fixed (uint* first = tokens)
            {
                int status = Native.nvllm_add_request_tokens(handle, first, (UIntPtr)tokens.Length, Fill(options, &native, memory), &id, &error);
                Check.Succeeded(status, &error);
            }
            return id;
        }

        /// <summary>[any] Queues a conversation, to be answered by the model, and returns the id of its request.
        /// <paramref name="templateOptions"/> are variables of the chat template, as a JSON object. The template gets the tools of the
        /// options.</summary>
        public ulong AddChat(IReadOnlyList<ChatMessage> messages, RequestOptions options = null, string templateOptions = null)
        {
            if (messages == null) throw new ArgumentNullException(nameof(messages));
            nvllm_request_options native;
            nvllm_error error;
            ulong id;
            using (var memory = new Borrowed())
            {
                nvllm_message* first = memory.Messages(messages, nameof(messages));
                byte* variables = templateOptions == null ? null : memory.Text(templateOptions, nameof(templateOptions));
                int status = Native.nvllm_add_chat(handle, first, (UIntPtr)messages.Count, variables, Fill(options, &native, memory), &id, &error);
                Check.Succeeded(status, &error);
            }
            return id;
        }

        /// <summary>[one] Adds a request whose prompt is the whole current text of a live one, and returns its id.</summary>
        public ulong Fork(ulong requestId, int index = 0, RequestOptions options = null)
        {
            nvllm_request_options native;
            nvllm_error error;
            ulong id;
            using (inbox.Enter())
            using (var memory = new Borrowed())
            {
                Check.Succeeded(Native.nvllm_fork(handle, requestId, checked((uint)index), Fill(options, &native, memory), &id, &error), &error);
            }
            return id;
        }

        /// <summary>[any] Cancels a request; its last outputs have Finish.Cancelled. False if it has ended.</summary>
        public bool Cancel(ulong requestId)
        {
            nvllm_error error;
            return Check.Found(Native.nvllm_cancel_with_error(handle, requestId, &error), &error);
        }

        // ---- stepping, and outputs ----

        /// <summary>[one] Computes for about <paramref name="budget"/>, such as what is left of a frame, or one forward pass if it is 0. Outputs
        /// then come from TryPoll, or have been given to the receiver of SetOutputReceiver.</summary>
        public StepResult Step(TimeSpan budget = default)
        {
            using (inbox.Enter())
            {
                StepResult result = StepNative(budget);
                result.NumOutputs += (uint)inbox.NumUnclaimed;
                // Nobody polls for a stream that was left, and a loop until IsFinished is to end.
                if (inbox.AnyStream(left: true)) result.NumOutputs -= inbox.Deal();
                return result;
            }
        }

        StepResult StepNative(TimeSpan budget)
        {
            StepResult result = default;
            nvllm_error error;
            result.StructSize = (UIntPtr)sizeof(StepResult);
            // A budget below one microsecond is not "one pass".
            ulong micros = budget <= TimeSpan.Zero ? 0 : Math.Max(1, (ulong)budget.Ticks / 10);
            int status = Native.nvllm_step(handle, micros, &result, &error);
            GC.KeepAlive(this);
            handle.OutputReceiver?.Rethrow();
            Check.Succeeded(status, &error);
            Closed |= status == (int)Status.Closed;
            return result;
        }

        /// <summary>Whether process 0, which this engine follows, has freed its engine.</summary>
        public bool Closed { get; private set; }

        /// <summary>[any] Waits until Step has work or TryPoll has an output, without a limit. False if Wake was called.</summary>
        public bool Wait() => Wait(Timeout.InfiniteTimeSpan);

        /// <summary>[any] As the other, for at most <paramref name="timeout"/>; false if that is over, too. A time below 0 only looks, but for
        /// Timeout.InfiniteTimeSpan. Throws ObjectDisposedException if the engine is disposed meanwhile. For a loop that serves requests of
        /// other threads: Wait, Step, and TryPoll until it returns false.</summary>
        public bool Wait(TimeSpan timeout)
        {
            if (inbox.NumUnclaimed > 0) return true;
            ulong micros = timeout == Timeout.InfiniteTimeSpan ? ulong.MaxValue : timeout <= TimeSpan.Zero ? 0 : ((ulong)timeout.Ticks + 9) / 10;
            nvllm_error error;
            bool held = false;
            try
            {
                handle.DangerousAddRef(ref held);
                int status = Native.nvllm_wait(handle.DangerousGetHandle(), micros, &error);
                if (disposed)
                {
                    // Another thread may be about to wait: it ends there too, one after the other.
                    Native.nvllm_wake(handle.DangerousGetHandle(), null);
                    throw new ObjectDisposedException(nameof(Engine));
                }
                Check.Succeeded(status, &error);
                return status != (int)Status.Timeout;
            }
            finally
            {
                if (held) handle.DangerousRelease();
            }
        }

        /// <summary>[any] Ends every Wait that is in progress, and the next one that begins, unless there is something to do.</summary>
        public void Wake()
        {
            if (!WakeIfOpen()) throw new ObjectDisposedException(nameof(Engine));
        }

        bool WakeIfOpen()
        {
            bool held = false;
            try
            {
                handle.DangerousAddRef(ref held);
                // It fails where no wait is left: in an engine that can no longer be used.
                Native.nvllm_wake(handle.DangerousGetHandle(), null);
                return true;
            }
            catch (ObjectDisposedException)
            {
                return false;
            }
            finally
            {
                if (held) handle.DangerousRelease();
            }
        }

        /// <summary>[any] Whether no request is waiting or running, and no output is waiting. False until outputs are polled, so that a loop of
        /// Step alone never ends; true for an engine that can no longer be used, of which Step throws the error.</summary>
        public bool IsFinished => Native.nvllm_is_finished(handle) != 0 && inbox.NumUnclaimed == 0;

        /// <summary>[one] Takes the oldest output of a request of AddRequest or Fork; false if none is waiting. The memory of
        /// <paramref name="output"/> is reused, so that a loop allocates nothing once it is large enough; null makes a new one.</summary>
        public bool TryPoll(ref Output output)
        {
            using (inbox.Enter()) return inbox.TryTake(ref output);
        }

        /// <summary>[one] Gives outputs to a receiver, inside Step, instead of queueing them for TryPoll; null returns to polling. The receiver gets
        /// the same object each time, whose contents are replaced by the next output. If it throws, the request is cancelled, and Step throws the
        /// exception again. Not together with Stream.</summary>
        public void SetOutputReceiver(Action<Output> receiver)
        {
            using (inbox.Enter()) Receive(receiver);
        }

        void Receive(Action<Output> receiver)
        {
            if (receiver != null && inbox.AnyStream(left: false)) throw new InvalidOperationException("streams are being read, which poll their outputs");
            nvllm_error error;
            Receiver<IntPtr> next = null;
            if (receiver != null)
            {
                var output = new Output();
                next = new Receiver<IntPtr>(native =>
                {
                    // A stream that was left: one that is read excludes receivers.
                    if (inbox.OwnerOf((nvllm_output*)native) != null) return;
                    output.Set((nvllm_output*)native);
                    receiver(output);
                }, GCHandleType.Weak);
            }
            int status = Native.nvllm_set_output_callback(handle, next == null ? IntPtr.Zero : Callbacks.Output, next == null ? IntPtr.Zero : next.UserData, &error);
            if (status < 0) next?.Dispose();
            Check.Succeeded(status, &error);
            handle.OutputReceiver?.Dispose();
            handle.OutputReceiver = next;
        }

        /// <summary>[one] Yields the outputs of a prompt, and steps the engine for them. Several streams may be read by turns; leaving one early
        /// cancels its request, whose last outputs nobody gets.</summary>
        public IEnumerable<Output> Stream(string prompt, RequestOptions options = null)
        {
            if (prompt == null) throw new ArgumentNullException(nameof(prompt));
            return Outputs(() => AddRequest(prompt, options), options);
        }

        /// <summary>[one] As the other, for a prompt of tokens.</summary>
        public IEnumerable<Output> Stream(uint[] tokens, RequestOptions options = null)
        {
            if (tokens == null) throw new ArgumentNullException(nameof(tokens));
            return Outputs(() => AddRequest(tokens, options), options);
        }

        /// <summary>[one] As the other, for a conversation: see AddChat.</summary>
        public IEnumerable<Output> StreamChat(IReadOnlyList<ChatMessage> messages, RequestOptions options = null, string templateOptions = null)
        {
            if (messages == null) throw new ArgumentNullException(nameof(messages));
            return Outputs(() => AddChat(messages, options, templateOptions), options);
        }

        IEnumerable<Output> Outputs(Func<ulong> add, RequestOptions options)
        {
            uint left = options?.N ?? 1;
            var own = new Followed(left);
            ulong id;
            // Inside, so that no other thread polls an output before its stream is known.
            using (inbox.Enter())
            {
                if (handle.OutputReceiver != null) throw new InvalidOperationException("outputs go to the receiver of SetOutputReceiver, and not to streams");
                id = add();
                inbox.Follow(id, own);
            }
            try
            {
                while (left > 0)
                {
                    Output output;
                    using (inbox.Enter())
                    {
                        while (own.Waiting.Count == 0) StepFor(id, own);
                        output = own.Waiting.Dequeue();
                    }
                    if (output.Finished) left--;
                    yield return output;
                }
            }
            finally
            {
                own.Left = true;
                if (left > 0) Abandon(id);
            }
        }

        void StepFor(ulong id, Followed stream)
        {
            // An engine that can no longer be used is finished too: then the step throws its error.
            bool gone = Native.nvllm_is_finished(handle) != 0;
            StepNative(default);
            inbox.Deal();
            if (gone && stream.Waiting.Count == 0) throw new InvalidOperationException("request " + id + " has ended, and its outputs went elsewhere");
        }

        void Abandon(ulong id)
        {
            try
            {
                // It may have ended meanwhile; then there is nothing to cancel.
                Native.nvllm_cancel(handle, id);
            }
            catch (ObjectDisposedException)
            {
                // Its requests ended with the engine.
            }
        }

        // ---- many prompts in one call ----

        /// <summary>[one] Generates for all prompts, and returns their completions in the order of the prompts, as many per prompt as its N. A prompt
        /// that cannot run has one with Finish.Error. <paramref name="progress"/> is called after every step; what it throws ends the call, and is
        /// thrown again.</summary>
        public Output[] Generate(IReadOnlyList<string> prompts, RequestOptions options = null, Action<Progress> progress = null) =>
            Generate(prompts, new[] { options }, progress);

        /// <summary>[one] As the other, for one prompt: its completions.</summary>
        public Output[] Generate(string prompt, RequestOptions options = null) => Generate(new[] { prompt }, new[] { options }, null);

        /// <summary>[one] As the other, with options for each prompt.</summary>
        public Output[] Generate(IReadOnlyList<string> prompts, IReadOnlyList<RequestOptions> options, Action<Progress> progress = null)
        {
            var texts = new byte[prompts.Count][];
            for (int i = 0; i < texts.Length; i++) texts[i] = Utf8.Bytes(prompts[i]);
            return GenerateAll(texts, sizeof(byte), options, progress);
        }

        /// <summary>[one] As the other, for prompts of tokens.</summary>
        public Output[] Generate(IReadOnlyList<uint[]> prompts, RequestOptions options = null, Action<Progress> progress = null)
        {
            var tokens = new uint[prompts.Count][];
            for (int i = 0; i < tokens.Length; i++) tokens[i] = prompts[i] ?? throw new ArgumentNullException(nameof(prompts));
            return GenerateAll(tokens, sizeof(uint), new[] { options }, progress);
        }

        /// <summary>[one] Scores texts with a classifier or a reranker, or pairs of each text and the one of <paramref name="seconds"/> with the same
        /// index: Scores of each output has one score per label. A text that cannot be scored has an output with Finish.Error. With ScoreTokens, a model that
        /// generates gives texts one score per token.</summary>
        public Output[] Score(IReadOnlyList<string> texts, IReadOnlyList<string> seconds = null, RequestOptions options = null)
        {
            if (seconds != null && seconds.Count != texts.Count) throw new ArgumentException("there must be as many as texts", nameof(seconds));
            using (inbox.Enter())
            using (var memory = new Borrowed())
            {
                var first = Pointers(texts, nameof(texts), memory);
                var second = seconds == null ? null : Pointers(seconds, nameof(seconds), memory);
                nvllm_request_options native;
                nvllm_request_options* shared = Fill(options, &native, memory);
                nvllm_error error;
                IntPtr result;
                int status;
                fixed (IntPtr* from = first)
                fixed (IntPtr* beside = second)
                {
                    IntPtr none;
                    status = Native.nvllm_score(handle, (byte**)(from == null ? &none : from), (byte**)beside, (UIntPtr)texts.Count, &shared,
                        (UIntPtr)1, IntPtr.Zero, IntPtr.Zero, &result, &error);
                }
                GC.KeepAlive(this);
                Check.Succeeded(status, &error);
                return Taken(result);
            }
        }

        static IntPtr[] Pointers(IReadOnlyList<string> texts, string name, Borrowed memory)
        {
            var pointers = new IntPtr[texts.Count];
            for (int i = 0; i < pointers.Length; i++)
            {
                byte[] bytes = Utf8.TerminatedBytes(texts[i], name);
                pointers[i] = memory.Pinned(bytes, bytes.Length);
            }
            return pointers;
        }

        /// <summary>The name of a label of a classifier, of NumLabels in ModelInfo.</summary>
        public string Label(int index) =>
            Utf8.Written((text, capacity, needed, error) => Native.nvllm_label(handle, (UIntPtr)index, text, capacity, needed, error));

        /// <summary>What stands before texts of a kind, such as "query", by the model's folder, or with null by its default; "" where it names none.</summary>
        public string NamedPrompt(string name = null)
        {
            byte[] bytes = name == null ? null : Utf8.TerminatedBytes(name, nameof(name));
            return Utf8.Written((text, capacity, needed, error) =>
            {
                fixed (byte* named = bytes) return Native.nvllm_named_prompt(handle, named, text, capacity, needed, error);
            });
        }

        Output[] GenerateAll(Array[] prompts, int itemSize, IReadOnlyList<RequestOptions> options, Action<Progress> progress)
        {
            using (inbox.Enter()) return GenerateNative(prompts, itemSize, options, progress);
        }

        Output[] GenerateNative(Array[] prompts, int itemSize, IReadOnlyList<RequestOptions> options, Action<Progress> progress)
        {
            var pointers = new IntPtr[prompts.Length];
            var lengths = new UIntPtr[prompts.Length];
            var structs = new nvllm_request_options[options.Count];
            var optionPointers = new IntPtr[options.Count];
            nvllm_error error;
            IntPtr result;
            byte empty;
            using (var memory = new Borrowed())
            using (var receiver = new Receiver<Progress>(progress ?? (_ => { }), GCHandleType.Normal))
            {
                for (int i = 0; i < prompts.Length; i++)
                {
                    pointers[i] = prompts[i].Length == 0 ? (IntPtr)(&empty) : memory.Pinned(prompts[i], prompts[i].Length);
                    lengths[i] = (UIntPtr)prompts[i].Length;
                }
                var first = (nvllm_request_options*)memory.Pinned(structs, structs.Length);
                for (int i = 0; i < structs.Length; i++) optionPointers[i] = (IntPtr)Fill(options[i], first + i, memory);
                var texts = memory.Pinned(pointers, pointers.Length);
                var counts = (UIntPtr*)memory.Pinned(lengths, lengths.Length);
                var each = (nvllm_request_options**)memory.Pinned(optionPointers, optionPointers.Length);
                int status = itemSize == sizeof(byte)
                    ? Native.nvllm_generate(handle, (byte**)texts, counts, (UIntPtr)prompts.Length, each, (UIntPtr)structs.Length,
                        Callbacks.Generating, receiver.UserData, &result, &error)
                    : Native.nvllm_generate_tokens(handle, (uint**)texts, counts, (UIntPtr)prompts.Length, each, (UIntPtr)structs.Length,
                        Callbacks.Generating, receiver.UserData, &result, &error);
                GC.KeepAlive(this);
                if (status < 0) receiver.Rethrow();
                Check.Succeeded(status, &error);
            }
            return Taken(result);
        }

        /// <summary>Copies the outputs of a result, and frees it.</summary>
        Output[] Taken(IntPtr result)
        {
            nvllm_error error;
            try
            {
                var outputs = new Output[(int)Native.nvllm_result_count(result)];
                nvllm_output native;
                for (int i = 0; i < outputs.Length; i++)
                {
                    native.struct_size = (UIntPtr)sizeof(nvllm_output);
                    Check.Succeeded(Native.nvllm_result_get_with_error(result, (UIntPtr)i, &native, &error), &error);
                    outputs[i] = Output.Copied(&native);
                }
                return outputs;
            }
            finally
            {
                Native.nvllm_result_free(result);
                handle.OutputReceiver?.Rethrow();
            }
        }

        // ---- text ----

        /// <summary>[any] The tokens of a text.</summary>
        public uint[] Tokenize(string text, TokenizeFlags flags = TokenizeFlags.AddSpecial)
        {
            byte[] bytes = Utf8.Bytes(text);
            var tokens = new uint[bytes.Length + 16];
            while (true)
            {
                nvllm_error error;
                UIntPtr needed;
                int status;
                fixed (byte* from = bytes)
                fixed (uint* to = tokens)
                {
                    status = Native.nvllm_tokenize(handle, NotNull(from), (UIntPtr)bytes.Length, (uint)flags, to, (UIntPtr)tokens.Length, &needed, &error);
                }
                if (status != (int)Status.BufferTooSmall)
                {
                    Check.Succeeded(status, &error);
                    Array.Resize(ref tokens, (int)needed);
                    return tokens;
                }
                tokens = new uint[(int)needed];
            }
        }

        /// <summary>[any] The text of tokens. With TokenizeFlags.ParseSpecial, special tokens are spelled out.</summary>
        public string Detokenize(ReadOnlySpan<uint> tokens, TokenizeFlags flags = 0)
        {
            var count = (UIntPtr)tokens.Length;
            fixed (uint* first = tokens)
            {
                uint* from = first;
                return Utf8.Written((byte* text, UIntPtr capacity, UIntPtr* needed, nvllm_error* error) =>
                    Native.nvllm_detokenize(handle, from, count, (uint)flags, text, capacity, needed, error));
            }
        }

        /// <summary>[any] The prompt of a conversation, by the chat template of the model.</summary>
        public string ApplyChatTemplate(params ChatMessage[] messages) => ApplyChatTemplate(Json.Array(messages));

        /// <summary>[any] As the other, for a JSON array of messages, with a JSON object of options or null: "add_generation_prompt", "tools",
        /// "documents", and any variable that the template uses.</summary>
        public string ApplyChatTemplate(string messagesJson, string optionsJson = null)
        {
            byte[] messages = Utf8.Bytes(messagesJson), options = optionsJson == null ? null : Utf8.Bytes(optionsJson);
            fixed (byte* firstMessage = messages)
            fixed (byte* firstOption = options)
            {
                byte* from = NotNull(firstMessage), with = firstOption;
                return Utf8.Written((byte* text, UIntPtr capacity, UIntPtr* needed, nvllm_error* error) => Native.nvllm_apply_chat_template(
                    handle, from, (UIntPtr)messages.Length, with, (UIntPtr)(options?.Length ?? 0), text, capacity, needed, error));
            }
        }

        // ---- answers ----

        /// <summary>[any] A parser for one answer of the model: content, reasoning and tool calls, while it is written. <paramref name="prompt"/> is the
        /// text after which the model writes, or null if it is not known: a chat template may have begun the answer. <paramref name="tools"/> are
        /// those of the request, as JSON, or null. The request needs KeepSpecialTokens.</summary>
        public AnswerParser CreateAnswerParser(string prompt = null, string tools = null)
        {
            byte[] bytes = Utf8.Bytes(prompt ?? "");
            nvllm_error error;
            IntPtr parser;
            using (var memory = new Borrowed())
            fixed (byte* text = bytes)
            {
                byte* given = tools == null ? null : memory.Text(tools, nameof(tools));
                Check.Succeeded(Native.nvllm_answer_parser_new(handle, NotNull(text), (UIntPtr)bytes.Length, given, &parser, &error), &error);
            }
            return new AnswerParser(parser);
        }

        // ---- cached prefixes ----

        /// <summary>[one] Removes all prefixes that no sequence uses and that are not pinned.</summary>
        public void ResetPrefixCache()
        {
            nvllm_error error;
            using (inbox.Enter()) Check.Succeeded(Native.nvllm_reset_prefix_cache(handle, &error), &error);
        }

        /// <summary>[one] Gives memory of the KV cache back that no running request and no pinned prompt needs. Returns the number of
        /// bytes.</summary>
        public long Trim()
        {
            nvllm_error error;
            ulong freed;
            using (inbox.Enter()) Check.Succeeded(Native.nvllm_trim(handle, &freed, &error), &error);
            return (long)freed;
        }

        /// <summary>[any] Releases the prompt that a request pinned by PinPrompt. False if there is none.</summary>
        public bool ReleasePrefix(ulong requestId)
        {
            nvllm_error error;
            return Check.Found(Native.nvllm_release_prefix_with_error(handle, requestId, &error), &error);
        }

        /// <summary>[one] Saves the longest cached prefix of these tokens, of which <paramref name="savedTokens"/> are in it.</summary>
        public byte[] SavePrefix(ReadOnlySpan<uint> tokens, out int savedTokens, ulong cacheSalt = 0)
        {
            nvllm_error error;
            UIntPtr needed, saved;
            using (inbox.Enter())
            fixed (uint* first = tokens)
            {
                int status = Native.nvllm_save_prefix(handle, first, (UIntPtr)tokens.Length, cacheSalt, null, UIntPtr.Zero, &needed, &saved, &error);
                if (status != (int)Status.BufferTooSmall) Check.Succeeded(status, &error);
                var bytes = new byte[checked((int)needed)];
                fixed (byte* to = bytes)
                {
                    status = Native.nvllm_save_prefix(handle, first, (UIntPtr)tokens.Length, cacheSalt, to, needed, &needed, &saved, &error);
                    Check.Succeeded(status, &error);
                }
                savedTokens = (int)saved;
                return bytes;
            }
        }

        /// <summary>[one] How many tokens each expert of a layer was chosen for since an engine with ExpertStatistics was opened; none for a layer without
        /// experts.</summary>
        public ulong[] ExpertTokens(int layer)
        {
            nvllm_error error;
            UIntPtr needed;
            using (inbox.Enter())
            {
                int status = Native.nvllm_expert_tokens(handle, (UIntPtr)checked((uint)layer), null, UIntPtr.Zero, &needed, &error);
                if (status != (int)Status.BufferTooSmall) Check.Succeeded(status, &error);
                var counts = new ulong[checked((int)needed)];
                fixed (ulong* to = counts)
                {
                    status = Native.nvllm_expert_tokens(handle, (UIntPtr)layer, to, needed, &needed, &error);
                    Check.Succeeded(status, &error);
                }
                return counts;
            }
        }

        /// <summary>[one] Puts a saved prefix into the prefix cache, and returns the number of its tokens.</summary>
        public int RestorePrefix(ReadOnlySpan<byte> bytes)
        {
            nvllm_error error;
            UIntPtr restored;
            using (inbox.Enter())
            fixed (byte* first = bytes)
            {
                Check.Succeeded(Native.nvllm_restore_prefix(handle, NotNull(first), (UIntPtr)bytes.Length, &restored, &error), &error);
            }
            return (int)restored;
        }

        // An empty array has no address, and C takes NULL for an argument that is missing. C reads no byte of it.
        static byte* NotNull(byte* first) => first == null ? (byte*)1 : first;
    }
}
