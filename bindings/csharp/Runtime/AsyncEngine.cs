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

        // Guards everything below, and is pulsed when there may be work.
        readonly object work = new object();
        readonly Dictionary<ulong, Mailbox> mailboxes = new Dictionary<ulong, Mailbox>();
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
            return new Outputs(this, () => Engine.AddRequest(prompt, options), options);
        }

        /// <summary>As the other, for a prompt of tokens.</summary>
        public IAsyncEnumerable<Output> Stream(uint[] tokens, RequestOptions options = null)
        {
            if (tokens == null) throw new ArgumentNullException(nameof(tokens));
            return new Outputs(this, () => Engine.AddRequest(tokens, options), options);
        }

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
            lock (work)
            {
                closing = true;
                Monitor.PulseAll(work);
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
                while (true)
                {
                    lock (work)
                    {
                        while (!closing && Engine.IsFinished) Monitor.Wait(work);
                        if (closing) return;
                    }
                    Engine.Step(Budget);
                    lock (work)
                    {
                        while (Engine.TryPoll(ref output))
                        {
                            if (!mailboxes.TryGetValue(output.RequestId, out Mailbox mailbox)) continue;
                            mailbox.Add(output);
                            output = null;
                        }
                    }
                }
            }
            catch (Exception exception)
            {
                End(exception);
            }
        }

        void End(Exception exception)
        {
            lock (work)
            {
                if (failed == null) failed = exception;
                foreach (Mailbox mailbox in mailboxes.Values) mailbox.Fail(exception);
                mailboxes.Clear();
            }
        }

        // The thread deals outputs under the same lock, so that it finds the mailbox of every request.
        ulong Add(Func<ulong> add, Mailbox mailbox)
        {
            lock (work)
            {
                if (failed != null) throw failed;
                if (closing) throw new ObjectDisposedException(nameof(AsyncEngine));
                ulong id = add();
                mailboxes.Add(id, mailbox);
                Monitor.PulseAll(work);
                return id;
            }
        }

        void Leave(ulong id, bool ended)
        {
            lock (work)
            {
                if (mailboxes.Remove(id) && !ended) Engine.Cancel(id);
            }
        }

        /// <summary>The outputs that one reader has not read yet.</summary>
        sealed class Mailbox
        {
            readonly Queue<Output> outputs = new Queue<Output>();
            TaskCompletionSource<bool> waiting;
            Exception failed;

            internal void Add(Output output)
            {
                lock (outputs)
                {
                    outputs.Enqueue(output);
                    Wake();
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
            readonly Func<ulong> add;
            readonly uint completions;

            internal Outputs(AsyncEngine engine, Func<ulong> add, RequestOptions options)
            {
                this.engine = engine;
                this.add = add;
                completions = options?.N ?? 1;
            }

            public IAsyncEnumerator<Output> GetAsyncEnumerator(CancellationToken cancellation = default) =>
                new Reader(engine, add, completions, cancellation);
        }

        sealed class Reader : IAsyncEnumerator<Output>
        {
            readonly AsyncEngine engine;
            readonly Func<ulong> add;
            readonly CancellationToken cancellation;
            readonly Mailbox mailbox = new Mailbox();
            CancellationTokenRegistration registration;
            ulong id;
            uint left;
            bool added;

            internal Reader(AsyncEngine engine, Func<ulong> add, uint completions, CancellationToken cancellation)
            {
                this.engine = engine;
                this.add = add;
                this.cancellation = cancellation;
                left = completions;
            }

            public Output Current { get; private set; }

            public ValueTask<bool> MoveNextAsync()
            {
                cancellation.ThrowIfCancellationRequested();
                if (!added)
                {
                    id = engine.Add(add, mailbox);
                    added = true;
                    registration = cancellation.Register(() => mailbox.Fail(new OperationCanceledException(cancellation)));
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
                if (output.Finished && --left == 0) engine.Leave(id, true);
                return true;
            }

            public ValueTask DisposeAsync()
            {
                registration.Dispose();
                if (added) engine.Leave(id, left == 0);
                left = 0;
                return default;
            }
        }
    }
}
