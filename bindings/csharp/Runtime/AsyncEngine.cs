// An engine for asynchronous code: one thread steps it, and any number of readers enumerate outputs.
//
// The enumerators are written by hand: C# 7 compiles this file, and C# 8 reads it with `await foreach`.

using System;
using System.Collections.Generic;
using System.Threading;
using System.Threading.Tasks;

namespace Nanovllm
{
    public sealed class AsyncEngine : IDisposable
    {
        /// <summary>Time of computing between two looks at what was asked meanwhile.</summary>
        static readonly TimeSpan Budget = TimeSpan.FromMilliseconds(10);

        // Guards what follows. Never held while a request is added, whose structure may take seconds to compile, nor during a step.
        readonly object sync = new object();
        // By request, until the last output has come, also where the reader has left.
        readonly Dictionary<ulong, Mailbox> mailboxes = new Dictionary<ulong, Mailbox>();
        // Readers whose requests are being added, and outputs that came before it was known whose they are.
        readonly HashSet<Mailbox> adding = new HashSet<Mailbox>();
        readonly Dictionary<ulong, Queue<Output>> early = new Dictionary<ulong, Queue<Output>>();
        readonly Thread thread;
        bool closing;
        Exception failed;

        /// <summary>Steps an engine on a thread of its own until Dispose, which disposes the engine too. Nothing else may step it
        /// meanwhile.</summary>
        public AsyncEngine(Engine engine)
        {
            Engine = engine ?? throw new ArgumentNullException(nameof(engine));
            thread = new Thread(Run) { IsBackground = true, Name = "nanovllm" };
            thread.Start();
        }

        /// <summary>For what is [any]: tokenizer, chat template, statistics.</summary>
        public Engine Engine { get; }

        /// <summary>The outputs of a prompt. Each enumeration is a request of its own, which leaving it early, or its cancellation token,
        /// cancels.</summary>
        public IAsyncEnumerable<Output> Stream(string prompt, RequestOptions options = null)
        {
            if (prompt == null) throw new ArgumentNullException(nameof(prompt));
            return Stream((engine, given) => engine.AddRequest(prompt, given), options);
        }

        /// <summary>As the other, for a prompt of tokens.</summary>
        public IAsyncEnumerable<Output> Stream(uint[] tokens, RequestOptions options = null)
        {
            if (tokens == null) throw new ArgumentNullException(nameof(tokens));
            var copied = (uint[])tokens.Clone();
            return Stream((engine, given) => engine.AddRequest(copied, given), options);
        }

        /// <summary>As the other, for a conversation: see Engine.AddChat.</summary>
        public IAsyncEnumerable<Output> StreamChat(IReadOnlyList<ChatMessage> messages, RequestOptions options = null, string templateOptions = null)
        {
            if (messages == null) throw new ArgumentNullException(nameof(messages));
            var copied = new List<ChatMessage>(messages);
            return Stream((engine, given) => engine.AddChat(copied, given, templateOptions), options);
        }

        // The request is added by a function, which the tests let wait.
        internal IAsyncEnumerable<Output> Stream(Func<Engine, RequestOptions, ulong> add, RequestOptions options) => new Outputs(this, add, options);

        /// <summary>The completions of a prompt, each whole.</summary>
        public async Task<Output[]> Generate(string prompt, RequestOptions options = null, CancellationToken cancellation = default)
        {
            uint completions = options?.N ?? 1;
            Output[] whole = null;
            IAsyncEnumerator<Output> outputs = Stream(prompt, options).GetAsyncEnumerator(cancellation);
            try
            {
                while (await outputs.MoveNextAsync().ConfigureAwait(false))
                {
                    // Not before the library has accepted the number.
                    whole = whole ?? new Output[completions];
                    Output next = outputs.Current;
                    if (whole[next.Index] == null) whole[next.Index] = next;
                    else whole[next.Index].Append(next);
                }
                return whole;
            }
            finally
            {
                await outputs.DisposeAsync().ConfigureAwait(false);
            }
        }

        /// <summary>Ends all streams with an ObjectDisposedException and the thread, and disposes the engine.</summary>
        public void Dispose()
        {
            lock (sync) closing = true;
            try
            {
                Engine.Wake();
            }
            catch (ObjectDisposedException)
            {
                // The thread has ended with the engine.
            }
            thread.Join();
            End(new ObjectDisposedException(nameof(AsyncEngine)));
            Engine.Dispose();
        }

        void Run()
        {
            Output output = null;
            try
            {
                // Process 0, if this one follows it, has no streams here.
                while (!Engine.Closed)
                {
                    bool awaited = Engine.Wait();
                    lock (sync)
                    {
                        if (closing) return;
                    }
                    if (!awaited) continue;
                    Engine.Step(Budget);
                    while (Engine.TryPoll(ref output))
                    {
                        lock (sync)
                        {
                            if (Deal(output)) output = null;
                        }
                    }
                }
            }
            catch (Exception exception)
            {
                End(exception);
            }
        }

        // Whether the output has a reader now; else its memory can be used again.
        bool Deal(Output output)
        {
            if (mailboxes.TryGetValue(output.RequestId, out Mailbox mailbox))
            {
                if (output.Finished && --mailbox.Unfinished == 0) mailboxes.Remove(output.RequestId);
                return mailbox.Add(output);
            }
            if (adding.Count == 0) return false;
            if (!early.TryGetValue(output.RequestId, out Queue<Output> waiting)) early.Add(output.RequestId, waiting = new Queue<Output>());
            waiting.Enqueue(output);
            return true;
        }

        void End(Exception exception)
        {
            lock (sync)
            {
                if (failed == null) failed = exception;
                foreach (Mailbox mailbox in mailboxes.Values) mailbox.Fail(exception);
                foreach (Mailbox mailbox in adding) mailbox.Fail(exception);
            }
        }

        // Begins to add a request on another thread. One with a structure gets a thread of its own: there may be many, and each may take long.
        void BeginAdd(Func<Engine, RequestOptions, ulong> add, RequestOptions options, Mailbox mailbox)
        {
            // The caller may change its options as soon as this returns.
            options = options?.Clone();
            lock (sync)
            {
                if (failed != null) throw failed;
                if (closing) throw new ObjectDisposedException(nameof(AsyncEngine));
                adding.Add(mailbox);
            }
            TaskCreationOptions kind = options?.Structure == null ? TaskCreationOptions.DenyChildAttach : TaskCreationOptions.LongRunning;
            Task.Factory.StartNew(() => Add(add, options, mailbox), CancellationToken.None, kind, TaskScheduler.Default);
        }

        // The reader may have left before, and may leave meanwhile.
        void Add(Func<Engine, RequestOptions, ulong> add, RequestOptions options, Mailbox mailbox)
        {
            ulong? id = null;
            Exception refused = null;
            bool orphaned;
            try
            {
                if (!mailbox.Left) id = add(Engine, options);
            }
            catch (Exception exception)
            {
                refused = exception;
            }
            lock (sync)
            {
                adding.Remove(mailbox);
                if (id.HasValue)
                {
                    mailbox.Id = id;
                    mailboxes.Add(id.Value, mailbox);
                    if (early.TryGetValue(id.Value, out Queue<Output> waiting))
                    {
                        early.Remove(id.Value);
                        foreach (Output output in waiting) Deal(output);
                    }
                }
                if (adding.Count == 0) early.Clear();
                orphaned = id.HasValue && mailboxes.ContainsKey(id.Value) && (mailbox.Left || failed != null || closing);
            }
            if (refused != null) mailbox.Fail(refused);
            if (orphaned) Cancel(id.Value);
        }

        // A request that is being added is cancelled by who adds it.
        void Leave(Mailbox mailbox)
        {
            bool unfinished;
            lock (sync)
            {
                mailbox.Leave();
                unfinished = mailbox.Id.HasValue && mailboxes.ContainsKey(mailbox.Id.Value);
            }
            if (unfinished) Cancel(mailbox.Id.Value);
        }

        void Cancel(ulong id)
        {
            try
            {
                Engine.Cancel(id);
            }
            catch (Exception exception) when (exception is NanovllmException || exception is ObjectDisposedException)
            {
                // Its requests ended with the engine.
            }
        }

        /// <summary>The outputs that one reader has not read yet.</summary>
        sealed class Mailbox
        {
            readonly Queue<Output> outputs = new Queue<Output>();
            TaskCompletionSource<bool> waiting;
            Exception failed;

            /// <summary>Completions whose last output has not come.</summary>
            internal uint Unfinished;

            /// <summary>Null while the request is added.</summary>
            internal ulong? Id;

            /// <summary>Whether nobody reads any more.</summary>
            internal volatile bool Left;

            internal Mailbox(uint completions) { Unfinished = completions; }

            /// <summary>False if nobody reads it.</summary>
            internal bool Add(Output output)
            {
                lock (outputs)
                {
                    if (Left) return false;
                    outputs.Enqueue(output);
                    Wake();
                    return true;
                }
            }

            internal void Leave()
            {
                lock (outputs)
                {
                    Left = true;
                    outputs.Clear();
                }
            }

            internal void Fail(Exception exception)
            {
                lock (outputs)
                {
                    if (failed == null) failed = exception;
                    Wake();
                }
            }

            // The reader continues on a thread of its own, and never inside a lock of this file.
            void Wake()
            {
                waiting?.TrySetResult(true);
                waiting = null;
            }

            /// <summary>Takes an output if there is one; else a task that ends when there may be one.</summary>
            internal Task<bool> Take(out Output output)
            {
                lock (outputs)
                {
                    output = null;
                    if (outputs.Count > 0)
                    {
                        output = outputs.Dequeue();
                        return null;
                    }
                    if (failed != null) return Task.FromException<bool>(failed);
                    waiting = waiting ?? new TaskCompletionSource<bool>(TaskCreationOptions.RunContinuationsAsynchronously);
                    return waiting.Task;
                }
            }
        }

        sealed class Outputs : IAsyncEnumerable<Output>
        {
            readonly AsyncEngine engine;
            readonly Func<Engine, RequestOptions, ulong> add;
            readonly RequestOptions options;

            internal Outputs(AsyncEngine engine, Func<Engine, RequestOptions, ulong> add, RequestOptions options)
            {
                this.engine = engine;
                this.add = add;
                this.options = options;
            }

            public IAsyncEnumerator<Output> GetAsyncEnumerator(CancellationToken cancellation = default) =>
                new Reader(engine, add, options, cancellation);
        }

        sealed class Reader : IAsyncEnumerator<Output>
        {
            readonly AsyncEngine engine;
            readonly Func<Engine, RequestOptions, ulong> add;
            readonly RequestOptions options;
            readonly CancellationToken cancellation;
            Mailbox mailbox;
            CancellationTokenRegistration registration;
            uint left;

            internal Reader(AsyncEngine engine, Func<Engine, RequestOptions, ulong> add, RequestOptions options, CancellationToken cancellation)
            {
                this.engine = engine;
                this.add = add;
                this.options = options;
                this.cancellation = cancellation;
            }

            public Output Current { get; private set; }

            public ValueTask<bool> MoveNextAsync()
            {
                cancellation.ThrowIfCancellationRequested();
                if (mailbox == null)
                {
                    // An N of 0 is refused by the library.
                    left = Math.Max(1, options?.N ?? 1);
                    var begun = new Mailbox(left);
                    engine.BeginAdd(add, options, begun);
                    mailbox = begun;
                    registration = cancellation.Register(() => begun.Fail(new OperationCanceledException(cancellation)));
                }
                if (left == 0) return new ValueTask<bool>(false);
                Task<bool> waiting = mailbox.Take(out Output output);
                return waiting == null ? new ValueTask<bool>(Give(output)) : new ValueTask<bool>(WaitAndGive(waiting));
            }

            async Task<bool> WaitAndGive(Task<bool> waiting)
            {
                while (true)
                {
                    await waiting.ConfigureAwait(false);
                    waiting = mailbox.Take(out Output output);
                    if (waiting == null) return Give(output);
                }
            }

            bool Give(Output output)
            {
                Current = output;
                if (output.Finished) left--;
                return true;
            }

            public ValueTask DisposeAsync()
            {
                registration.Dispose();
                if (mailbox != null) engine.Leave(mailbox);
                left = 0;
                return default;
            }
        }
    }
}
