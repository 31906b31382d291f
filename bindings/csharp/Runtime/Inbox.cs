// Which reader does an output belong to? Several streams and TryPoll may read from one engine, which has one queue.

using System;
using System.Collections.Generic;
using System.Threading;

namespace Nanovllm
{
    /// <summary>A request that has a stream.</summary>
    internal sealed class Followed
    {
        /// <summary>Its outputs that were polled.</summary>
        internal readonly Queue<Output> Waiting = new Queue<Output>();

        /// <summary>Number of completions whose last output has not been polled.</summary>
        internal uint Running;

        /// <summary>Whether its reader has left, on any thread. Nobody reads its outputs.</summary>
        internal volatile bool Left;

        internal Followed(uint completions) { Running = completions; }
    }

    /// <summary>The outputs that were polled on behalf of other readers. All but NumUnclaimed is for the thread that has entered.</summary>
    internal sealed unsafe class Inbox
    {
        readonly EngineHandle handle;
        // Requests that have or had a stream, until their last output is polled.
        readonly Dictionary<ulong, Followed> streams = new Dictionary<ulong, Followed>();
        readonly Queue<Output> unclaimed = new Queue<Output>();
        int numUnclaimed, entered;
        // Counted while outputs are between the library's queue and their readers: any thread may ask whether all is finished.
        const int InTransit = 1;

        internal Inbox(EngineHandle handle) { this.handle = handle; }

        /// <summary>Outputs of requests without a stream.</summary>
        internal int NumUnclaimed => Volatile.Read(ref numUnclaimed);

        /// <summary>Enters a [one] method, as in the C API: a second caller is refused.</summary>
        internal Entry Enter()
        {
            if (Interlocked.Exchange(ref entered, 1) != 0)
                throw new NanovllmException((int)Status.Busy, "another call that steps, polls or generates is inside this engine");
            return new Entry(this);
        }

        internal readonly struct Entry : IDisposable
        {
            readonly Inbox inbox;

            internal Entry(Inbox inbox) { this.inbox = inbox; }

            public void Dispose() => Volatile.Write(ref inbox.entered, 0);
        }

        internal void Follow(ulong id, Followed stream) => streams.Add(id, stream);

        /// <summary>Whether outputs are to come for a stream that is read, or for one that was left.</summary>
        internal bool AnyStream(bool left)
        {
            foreach (KeyValuePair<ulong, Followed> stream in streams)
            {
                if (stream.Value.Left == left) return true;
            }
            return false;
        }

        /// <summary>The stream of an output that the engine has just delivered; null if it has none.</summary>
        internal Followed OwnerOf(nvllm_output* output)
        {
            if (streams.Count == 0 || !streams.TryGetValue(output->request_id, out Followed owner)) return null;
            if (output->finish_reason != (int)Finish.None && --owner.Running == 0) streams.Remove(output->request_id);
            return owner;
        }

        /// <summary>Takes the oldest output without a stream.</summary>
        internal bool TryTake(ref Output output)
        {
            if (unclaimed.Count > 0)
            {
                output = unclaimed.Dequeue();
                Volatile.Write(ref numUnclaimed, unclaimed.Count);
                return true;
            }
            nvllm_output native;
            Volatile.Write(ref numUnclaimed, InTransit);
            try
            {
                while (Poll(&native))
                {
                    Followed owner = OwnerOf(&native);
                    if (owner == null)
                    {
                        if (output == null) output = new Output();
                        output.Set(&native);
                        return true;
                    }
                    if (!owner.Left) owner.Waiting.Enqueue(Output.Copied(&native));
                }
                return false;
            }
            finally
            {
                Volatile.Write(ref numUnclaimed, unclaimed.Count);
            }
        }

        /// <summary>Gives all outputs to their readers, and drops those of streams that were left. Returns how many those were.</summary>
        internal uint Deal()
        {
            uint dropped = 0;
            nvllm_output native;
            Volatile.Write(ref numUnclaimed, unclaimed.Count + InTransit);
            try
            {
                while (Poll(&native))
                {
                    Followed owner = OwnerOf(&native);
                    if (owner != null && owner.Left) dropped++;
                    else (owner?.Waiting ?? unclaimed).Enqueue(Output.Copied(&native));
                }
                return dropped;
            }
            finally
            {
                Volatile.Write(ref numUnclaimed, unclaimed.Count);
            }
        }

        bool Poll(nvllm_output* native)
        {
            nvllm_error error;
            native->struct_size = (UIntPtr)sizeof(nvllm_output);
            int status = Native.nvllm_poll_output(handle, native, &error);
            Check.Succeeded(status, &error);
            return status != (int)Status.NoOutput;
        }
    }
}
