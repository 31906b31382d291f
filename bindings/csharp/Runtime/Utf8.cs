// How does text pass between C# and the C API?

using System;
using System.Collections.Generic;
using System.Runtime.InteropServices;
using System.Text;

namespace Nanovllm
{
    internal static unsafe class Utf8
    {
        // A string with half of a surrogate pair has no UTF-8: it throws, and is not replaced.
        static readonly UTF8Encoding Strict = new UTF8Encoding(false, true);

        internal static byte[] Bytes(string text) => Strict.GetBytes(text);

        /// <summary>Bytes that C reads up to a NUL, which the text itself must not have.</summary>
        internal static byte[] TerminatedBytes(string text, string name)
        {
            if (text == null) throw new ArgumentNullException(name);
            if (text.IndexOf('\0') >= 0) throw new ArgumentException(name + " has a NUL character, and the C API ends texts at one", name);
            return Strict.GetBytes(text + "\0");
        }

        /// <summary>Encodes a text into bytes that grow if they are too few, and are never empty. Returns the number of bytes.</summary>
        internal static int Encode(ReadOnlySpan<char> text, ref byte[] bytes)
        {
            fixed (char* from = text)
            {
                if (from == null) return 0;
                int count = Strict.GetByteCount(from, text.Length);
                if (bytes.Length < count) bytes = new byte[Math.Max(count, 2 * bytes.Length)];
                fixed (byte* to = bytes) return Strict.GetBytes(from, text.Length, to, bytes.Length);
            }
        }

        internal delegate int Writer(byte* text, UIntPtr capacity, UIntPtr* needed, nvllm_error* error);

        /// <summary>The text that a function of the C API writes, which is called again if the buffer was too small.</summary>
        internal static string Written(Writer function)
        {
            var buffer = new byte[4096];
            while (true)
            {
                nvllm_error error;
                UIntPtr needed;
                fixed (byte* text = buffer)
                {
                    int status = function(text, (UIntPtr)buffer.Length, &needed, &error);
                    if (status != (int)Status.BufferTooSmall)
                    {
                        Check.Succeeded(status, &error);
                        return Text(text, (UIntPtr)((ulong)needed - 1));
                    }
                }
                buffer = new byte[checked((int)needed)];
            }
        }

        internal static string Text(byte* bytes, UIntPtr count) => count == UIntPtr.Zero ? "" : Encoding.UTF8.GetString(bytes, checked((int)count));

        internal static string Terminated(byte* bytes)
        {
            if (bytes == null) return "";
            int count = 0;
            while (bytes[count] != 0) count++;
            return Encoding.UTF8.GetString(bytes, count);
        }
    }

    /// <summary>Memory that a struct of options points to, until the call that takes the struct has returned.</summary>
    internal sealed unsafe class Borrowed : IDisposable
    {
        GCHandle[] pins = new GCHandle[4];
        int count;

        /// <summary>The address of an array that the collector does not move; null for an empty one.</summary>
        internal IntPtr Pinned(Array array, int length)
        {
            if (length == 0) return IntPtr.Zero;
            if (count == pins.Length) Array.Resize(ref pins, 2 * count);
            pins[count] = GCHandle.Alloc(array, GCHandleType.Pinned);
            return pins[count++].AddrOfPinnedObject();
        }

        internal byte* Text(string text, string name)
        {
            byte[] bytes = Utf8.TerminatedBytes(text, name);
            return (byte*)Pinned(bytes, bytes.Length);
        }

        internal byte** Texts(string[] texts, string name)
        {
            // One more, so that an empty list is not null.
            var pointers = new IntPtr[texts.Length + 1];
            for (int i = 0; i < texts.Length; i++) pointers[i] = (IntPtr)Text(texts[i], name + "[" + i + "]");
            return (byte**)Pinned(pointers, pointers.Length);
        }

        internal nvllm_message* Messages(IReadOnlyList<ChatMessage> messages, string name)
        {
            var natives = new nvllm_message[messages.Count];
            for (int i = 0; i < natives.Length; i++)
            {
                natives[i].role = Text(messages[i].Role, name + "[" + i + "].Role");
                natives[i].content = Text(messages[i].Content, name + "[" + i + "].Content");
            }
            return (nvllm_message*)Pinned(natives, natives.Length);
        }

        public void Dispose()
        {
            while (count > 0) pins[--count].Free();
        }
    }

    /// <summary>A message of a conversation.</summary>
    public readonly struct ChatMessage
    {
        public ChatMessage(string role, string content)
        {
            Role = role;
            Content = content;
        }

        /// <summary>Such as "system", "user" or "assistant".</summary>
        public string Role { get; }

        public string Content { get; }

        /// <summary>The message as JSON, an element of the array that Engine.ApplyChatTemplate takes.</summary>
        public string ToJson() => Json.Message(new StringBuilder(), this).ToString();
    }

    internal static class Json
    {
        internal static string Array(IReadOnlyList<ChatMessage> messages)
        {
            var json = new StringBuilder("[");
            foreach (ChatMessage message in messages)
            {
                if (json.Length > 1) json.Append(',');
                Message(json, message);
            }
            return json.Append(']').ToString();
        }

        internal static StringBuilder Message(StringBuilder json, ChatMessage message)
        {
            json.Append("{\"role\":");
            Append(json, message.Role);
            json.Append(",\"content\":");
            Append(json, message.Content);
            return json.Append('}');
        }

        static void Append(StringBuilder json, string text)
        {
            if (text == null) { json.Append("null"); return; }
            json.Append('"');
            foreach (char c in text)
            {
                if (c == '"' || c == '\\') json.Append('\\').Append(c);
                else if (c < ' ') json.Append("\\u").Append(((int)c).ToString("x4"));
                else json.Append(c);
            }
            json.Append('"');
        }
    }
}
