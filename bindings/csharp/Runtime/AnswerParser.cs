// What does an answer consist of? Content, reasoning and tool calls, while it is written.
//
// Invariant: what the parser says of the message is the sum of the events that it has returned, so that no JSON is parsed here.

using System;
using System.Collections.Generic;
using System.Text;

namespace Nanovllm
{
    /// <summary>What became known of an answer.</summary>
    public readonly struct AnswerEvent
    {
        internal AnswerEvent(AnswerEventKind kind, int callIndex, string text)
        {
            Kind = kind;
            CallIndex = callIndex;
            Text = text;
        }

        public AnswerEventKind Kind { get; }

        /// <summary>Which tool call, from 0; 0 for content and reasoning. Calls that broke count.</summary>
        public int CallIndex { get; }

        /// <summary>A piece of content, reasoning or arguments; the name of the tool that is called; the id of a call, or why it is none.</summary>
        public string Text { get; }
    }

    /// <summary>A call of a tool that is complete.</summary>
    public sealed class ToolCall
    {
        internal ToolCall(string id, string name, string arguments)
        {
            Id = id;
            Name = name;
            Arguments = arguments;
        }

        /// <summary>The id that the model gave to the call; null if it gave none, as most models do.</summary>
        public string Id { get; }

        /// <summary>The name of the tool.</summary>
        public string Name { get; }

        /// <summary>A JSON object, such as {"item":"sword","count":1}.</summary>
        public string Arguments { get; }
    }

    /// <summary>Reads one answer of a model: Engine.CreateAnswerParser makes it. It is independent of the engine, which may be disposed first. Its
    /// members may be used by any thread; they wait for each other.</summary>
    public sealed unsafe class AnswerParser : IDisposable
    {
        readonly object sync = new object();
        // Zero when disposed.
        IntPtr native;
        readonly StringBuilder content = new StringBuilder(), reasoning = new StringBuilder(), arguments = new StringBuilder();
        readonly List<ToolCall> calls = new List<ToolCall>();
        string callName;
        // Grows to the longest piece.
        byte[] bytes = new byte[64];

        internal AnswerParser(IntPtr native) { this.native = native; }

        ~AnswerParser() { Free(); }

        /// <summary>Reads a further piece of the answer, such as Output.TextSpan, and returns what became known. A piece has whole
        /// characters.</summary>
        public AnswerEvent[] Feed(ReadOnlySpan<char> text)
        {
            lock (sync)
            {
                IntPtr live = Live();
                nvllm_answer_event* events;
                UIntPtr count;
                nvllm_error error;
                int length = Utf8.Encode(text, ref bytes);
                fixed (byte* from = bytes)
                {
                    Check.Succeeded(Native.nvllm_answer_parser_feed(live, from, (UIntPtr)length, &events, &count, &error), &error);
                }
                return Read(events, count);
            }
        }

        /// <summary>Says that the answer ends here, and returns the last events. A second call returns none.</summary>
        public AnswerEvent[] Finish()
        {
            lock (sync)
            {
                IntPtr live = Live();
                nvllm_answer_event* events;
                UIntPtr count;
                nvllm_error error;
                Check.Succeeded(Native.nvllm_answer_parser_finish(live, &events, &count, &error), &error);
                return Read(events, count);
            }
        }

        /// <summary>The content so far.</summary>
        public string Content
        {
            get { lock (sync) return content.ToString(); }
        }

        /// <summary>The reasoning so far; "" if there is none.</summary>
        public string ReasoningContent
        {
            get { lock (sync) return reasoning.ToString(); }
        }

        /// <summary>The calls that are complete.</summary>
        public ToolCall[] ToolCalls
        {
            get { lock (sync) return calls.ToArray(); }
        }

        /// <summary>The message so far as JSON, in the form of a message for Engine.ApplyChatTemplate: role, content, and if there are some
        /// reasoning_content and tool_calls.</summary>
        public string GetMessageJson()
        {
            lock (sync)
            {
                IntPtr live = Live();
                return Utf8.Written((byte* text, UIntPtr capacity, UIntPtr* needed, nvllm_error* error) =>
                    Native.nvllm_answer_parser_message(live, text, capacity, needed, error));
            }
        }

        /// <summary>Frees the parser. What it has read can still be asked for, but for the JSON. Disposing twice does nothing.</summary>
        public void Dispose()
        {
            lock (sync) Free();
            GC.SuppressFinalize(this);
        }

        void Free()
        {
            if (native != IntPtr.Zero) Native.nvllm_answer_parser_free(native);
            native = IntPtr.Zero;
        }

        // Who holds the lock refers to this object until C has returned, so that it is not finalized meanwhile.
        IntPtr Live() => native != IntPtr.Zero ? native : throw new ObjectDisposedException(nameof(AnswerParser));

        AnswerEvent[] Read(nvllm_answer_event* found, UIntPtr count)
        {
            if (count == UIntPtr.Zero) return Array.Empty<AnswerEvent>();
            var events = new AnswerEvent[checked((int)count)];
            for (int i = 0; i < events.Length; i++)
            {
                events[i] = new AnswerEvent((AnswerEventKind)found[i].kind, checked((int)found[i].call_index), Utf8.Text(found[i].text, found[i].text_len));
                Note(events[i]);
            }
            return events;
        }

        void Note(AnswerEvent one)
        {
            switch (one.Kind)
            {
                case AnswerEventKind.Content:
                    content.Append(one.Text);
                    break;
                case AnswerEventKind.Reasoning:
                    reasoning.Append(one.Text);
                    break;
                case AnswerEventKind.ToolCallBegin:
                    callName = one.Text;
                    arguments.Clear();
                    break;
                case AnswerEventKind.ToolCallArguments:
                    arguments.Append(one.Text);
                    break;
                case AnswerEventKind.ToolCallEnd:
                    calls.Add(new ToolCall(one.Text.Length > 0 ? one.Text : null, callName, arguments.ToString()));
                    break;
                // The text of a call that broke follows as content.
            }
        }
    }
}
