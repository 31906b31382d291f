// A conversation that keeps its history. Three ways to read an answer: Send steps the engine itself; SendAsync reads from an AsyncEngine; and
// Begin leaves stepping to the caller's loop, which gives the outputs that it polls to Take.

using System;
using System.Collections.Generic;
using System.Threading;
using System.Threading.Tasks;

namespace Nanovllm
{
    /// <summary>A conversation that keeps its history. For one thread at a time; any number of conversations share an engine.</summary>
    public sealed class Chat
    {
        readonly List<ChatMessage> messages = new List<ChatMessage>();
        readonly int numSystem;
        // One, so that a call allocates none.
        readonly List<ChatMessage> asked = new List<ChatMessage>();
        char[] chars = new char[1024];
        int numChars;
        string text = "";

        /// <param name="system">The first message, with the role "system"; null for none.</param>
        public Chat(Engine engine, string system = null)
        {
            Engine = engine ?? throw new ArgumentNullException(nameof(engine));
            if (system != null) messages.Add(new ChatMessage("system", system));
            numSystem = messages.Count;
        }

        public Engine Engine { get; }

        /// <summary>How the answers are generated; null is as the model recommends. N must be 1.</summary>
        public RequestOptions Options { get; set; }

        /// <summary>Variables of the chat template, as a JSON object; null for none.</summary>
        public string TemplateOptions { get; set; }

        /// <summary>The history. A question and its answer are part of it when the answer has ended.</summary>
        public IReadOnlyList<ChatMessage> Messages => messages;

        /// <summary>Whether an answer is being generated.</summary>
        public bool IsAnswering { get; private set; }

        /// <summary>The request of the answer that is being generated, or of the last one; 0 before the first one.</summary>
        public ulong RequestId { get; private set; }

        /// <summary>What there is of the answer, or all of the last one.</summary>
        public string Answer => text ?? (text = new string(chars, 0, numChars));

        /// <summary>The same without a string being made; valid until the next output.</summary>
        public ReadOnlySpan<char> AnswerSpan => new ReadOnlySpan<char>(chars, 0, numChars);

        /// <summary>Adds messages to the history, such as those of an earlier conversation.</summary>
        public void Append(params ChatMessage[] more)
        {
            Refuse(IsAnswering);
            messages.AddRange(more ?? throw new ArgumentNullException(nameof(more)));
        }

        /// <summary>Forgets all but the message of the constructor.</summary>
        public void Reset()
        {
            Refuse(IsAnswering);
            messages.RemoveRange(Math.Min(numSystem, messages.Count), Math.Max(0, messages.Count - numSystem));
        }

        static void Refuse(bool isAnswering)
        {
            if (isAnswering) throw new InvalidOperationException("this conversation is being answered: read that answer to its end, or cancel it, first");
        }

        // ---- the caller's loop ----

        /// <summary>Says a text in the role "user", and queues the request for its answer. Give the outputs that Engine.TryPoll then returns,
        /// or that a receiver gets, to Take. Returns the id of the request.</summary>
        public ulong Begin(string text)
        {
            BeginAnswer(text);
            try
            {
                return RequestId = Engine.AddChat(asked, Options, TemplateOptions);
            }
            catch
            {
                IsAnswering = false;
                throw;
            }
        }

        /// <summary>Adds an output to the answer. False if it belongs to another request. With the last one the question and the answer become
        /// part of the history: as far as it came if it was cancelled, and not at all if there is none of it or it failed.</summary>
        public bool Take(Output output)
        {
            if (!IsAnswering || output.RequestId != RequestId) return false;
            AppendText(output.TextSpan);
            if (output.Finished) EndAnswer(output.FinishReason != Finish.Error && output.FinishReason != Finish.Expired);
            return true;
        }

        /// <summary>[any] Cancels the answer of Begin. Its last output is still to be taken. False if no answer is being generated.</summary>
        public bool Cancel() => IsAnswering && Engine.Cancel(RequestId);

        // ---- iterators ----

        /// <summary>[one] Says a text in the role "user", and yields the outputs of the answer. It steps the engine for them. An answer that is left
        /// early is kept as far as it came.</summary>
        public IEnumerable<Output> Send(string text)
        {
            BeginAnswer(text);
            bool isKept = true;
            try
            {
                foreach (Output output in Engine.StreamChat(asked, Options, TemplateOptions))
                {
                    RequestId = output.RequestId;
                    AppendText(output.TextSpan);
                    isKept = output.FinishReason != Finish.Error && output.FinishReason != Finish.Expired;
                    yield return output;
                }
            }
            finally
            {
                EndAnswer(isKept);
            }
        }

        /// <summary>As Send, by an AsyncEngine that steps the engine of this conversation.</summary>
        public IAsyncEnumerable<Output> SendAsync(AsyncEngine engine, string text)
        {
            if (engine == null) throw new ArgumentNullException(nameof(engine));
            if (engine.Engine != Engine) throw new ArgumentException("it steps another engine than that of this conversation", nameof(engine));
            return new AsyncAnswer(this, engine, text);
        }

        void BeginAnswer(string text)
        {
            if (text == null) throw new ArgumentNullException(nameof(text));
            Refuse(IsAnswering);
            if ((Options?.N ?? 1) != 1) throw new ArgumentException("N of the options of a conversation must be 1");
            asked.Clear();
            asked.AddRange(messages);
            asked.Add(new ChatMessage("user", text));
            numChars = 0;
            this.text = "";
            IsAnswering = true;
        }

        void AppendText(ReadOnlySpan<char> more)
        {
            if (more.IsEmpty) return;
            if (numChars + more.Length > chars.Length) Array.Resize(ref chars, Math.Max(numChars + more.Length, 2 * chars.Length));
            more.CopyTo(new Span<char>(chars, numChars, more.Length));
            numChars += more.Length;
            text = null;
        }

        void EndAnswer(bool isKept)
        {
            IsAnswering = false;
            if (!isKept || numChars == 0) return;
            messages.Add(asked[asked.Count - 1]);
            messages.Add(new ChatMessage("assistant", Answer));
        }

        /// <summary>Written by hand, as C# 7 has no asynchronous iterators.</summary>
        sealed class AsyncAnswer : IAsyncEnumerable<Output>
        {
            readonly Chat chat;
            readonly AsyncEngine engine;
            readonly string text;

            internal AsyncAnswer(Chat chat, AsyncEngine engine, string text)
            {
                this.chat = chat;
                this.engine = engine;
                this.text = text;
            }

            public IAsyncEnumerator<Output> GetAsyncEnumerator(CancellationToken cancellation = default)
            {
                chat.BeginAnswer(text);
                try
                {
                    return new Reader(chat, engine.StreamChat(chat.asked, chat.Options, chat.TemplateOptions).GetAsyncEnumerator(cancellation));
                }
                catch
                {
                    chat.IsAnswering = false;
                    throw;
                }
            }
        }

        sealed class Reader : IAsyncEnumerator<Output>
        {
            readonly Chat chat;
            readonly IAsyncEnumerator<Output> outputs;
            bool isKept = true, hasEnded;

            internal Reader(Chat chat, IAsyncEnumerator<Output> outputs)
            {
                this.chat = chat;
                this.outputs = outputs;
            }

            public Output Current => outputs.Current;

            public ValueTask<bool> MoveNextAsync() => new ValueTask<bool>(Next());

            public ValueTask DisposeAsync() => new ValueTask(End());

            async Task<bool> Next()
            {
                if (!await outputs.MoveNextAsync().ConfigureAwait(false)) return false;
                chat.RequestId = Current.RequestId;
                chat.AppendText(Current.TextSpan);
                isKept = Current.FinishReason != Finish.Error && Current.FinishReason != Finish.Expired;
                return true;
            }

            async Task End()
            {
                await outputs.DisposeAsync().ConfigureAwait(false);
                if (!hasEnded) chat.EndAnswer(isKept);
                hasEnded = true;
            }
        }
    }
}
