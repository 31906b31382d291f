// What does an engine say of a completion?

using System;
using System.Text;

namespace Nanovllm
{
    /// <summary>New tokens of a completion, or all of them where <c>Generate</c> returns it. Everything is copied from the library; an output that
    /// is given to <c>Engine.TryPoll</c> again has its memory reused.</summary>
    public sealed class Output
    {
        struct Items<T> where T : struct
        {
            T[] items;
            int count;

            internal ReadOnlySpan<T> Span => new ReadOnlySpan<T>(items, 0, count);

            internal unsafe void Set(void* from, ulong length)
            {
                count = from == null ? 0 : checked((int)length);
                if (items == null || items.Length < count) items = new T[Math.Max(count, 4)];
                new ReadOnlySpan<T>(from, count).CopyTo(items);
            }

            internal void Append(ReadOnlySpan<T> more)
            {
                if (items == null || items.Length < count + more.Length) Array.Resize(ref items, Math.Max(count + more.Length, 2 * count));
                more.CopyTo(new Span<T>(items, count, more.Length));
                count += more.Length;
            }
        }

        Items<uint> tokens, topTokens, promptTopTokens;
        Items<float> logprobs, topLogprobs, promptLogprobs, promptTopLogprobs, embedding, scores;
        char[] chars = new char[16];
        int numChars;
        string text;

        public ulong RequestId { get; private set; }

        /// <summary>Tag of the request's options.</summary>
        public ulong Tag { get; private set; }

        /// <summary>Of the completion within its request, from 0.</summary>
        public int Index { get; private set; }

        /// <summary>New tokens.</summary>
        public ReadOnlySpan<uint> TokenIds => tokens.Span;

        /// <summary>New text: it continues the prompt, so that a space at its beginning is kept.</summary>
        public string Text => text ?? (text = numChars == 0 ? "" : new string(chars, 0, numChars));

        /// <summary>The same without a string being made.</summary>
        public ReadOnlySpan<char> TextSpan => new ReadOnlySpan<char>(chars, 0, numChars);

        /// <summary>Finish.None until the completion has ended.</summary>
        public Finish FinishReason { get; private set; }

        /// <summary>Whether this is the last output of its completion.</summary>
        public bool Finished => FinishReason != Finish.None;

        /// <summary>Why it failed, if FinishReason is Finish.Error; else null.</summary>
        public NanovllmException Error { get; private set; }

        public int PromptTokens { get; private set; }

        /// <summary>Prompt tokens that were found in the prefix cache, or that another completion of the request had computed.</summary>
        public int CachedTokens { get; private set; }

        /// <summary>Tokens generated so far.</summary>
        public int CompletionTokens { get; private set; }

        /// <summary>Those of CompletionTokens that were reasoning, if the request has MaxThinkingTokens; else 0.</summary>
        public int ReasoningTokens { get; private set; }

        /// <summary>From adding the request to its first token or its embedding; 0 before that.</summary>
        public TimeSpan TimeToFirstToken { get; private set; }

        /// <summary>Log-probability of each of TokenIds, if NumLogprobs is not 0.</summary>
        public ReadOnlySpan<float> Logprobs => logprobs.Span;

        /// <summary>NumLogprobs of the request's options.</summary>
        public int NumLogprobs { get; private set; }

        /// <summary>NumLogprobs most likely tokens per token, most likely first; uint.MaxValue where fewer have any probability.</summary>
        public ReadOnlySpan<uint> TopTokens => topTokens.Span;

        /// <summary>Log-probabilities of TopTokens.</summary>
        public ReadOnlySpan<float> TopLogprobs => topLogprobs.Span;

        /// <summary>Sum of the log-probabilities of the completion so far.</summary>
        public float CumulativeLogprob { get; private set; }

        /// <summary>NumPromptLogprobs of the request's options; 0 if this output contains none.</summary>
        public int NumPromptLogprobs { get; private set; }

        /// <summary>Of each prompt token but the first.</summary>
        public ReadOnlySpan<float> PromptLogprobs => promptLogprobs.Span;

        /// <summary>As TopTokens, for the prompt.</summary>
        public ReadOnlySpan<uint> PromptTopTokens => promptTopTokens.Span;

        /// <summary>Log-probabilities of PromptTopTokens.</summary>
        public ReadOnlySpan<float> PromptTopLogprobs => promptTopLogprobs.Span;

        /// <summary>The pooled embedding, not normalized, of a request with <c>Pooling</c>.</summary>
        public ReadOnlySpan<float> Embedding => embedding.Span;

        /// <summary>The scores of a classifier, one for each of its labels.</summary>
        public ReadOnlySpan<float> Scores => scores.Span;

        /// <summary>Of a result of beam search: what results are ranked by.</summary>
        public float Score { get; private set; }

        internal static unsafe Output Copied(nvllm_output* native)
        {
            var output = new Output();
            output.Set(native);
            return output;
        }

        internal unsafe void Set(nvllm_output* native)
        {
            ulong count = (ulong)native->num_token_ids, rows = native->prompt_tokens == 0 ? 0 : native->prompt_tokens - 1;
            SetNumbers(native);
            tokens.Set(native->token_ids, count);
            SetText(native->text, checked((int)native->text_len));
            Error = FinishReason == Finish.Error ? new NanovllmException(native->status, Utf8.Terminated(native->error_message)) : null;
            logprobs.Set(native->logprobs, count);
            topTokens.Set(native->top_tokens, count * native->num_logprobs);
            topLogprobs.Set(native->top_logprobs, count * native->num_logprobs);
            promptLogprobs.Set(native->prompt_logprobs, rows);
            promptTopTokens.Set(native->prompt_top_tokens, rows * native->num_prompt_logprobs);
            promptTopLogprobs.Set(native->prompt_top_logprobs, rows * native->num_prompt_logprobs);
            embedding.Set(native->embedding, (ulong)native->embedding_len);
            scores.Set(native->scores, (ulong)native->num_scores);
        }

        unsafe void SetNumbers(nvllm_output* native)
        {
            RequestId = native->request_id;
            Tag = native->tag;
            Index = (int)native->index;
            FinishReason = (Finish)native->finish_reason;
            PromptTokens = (int)native->prompt_tokens;
            CachedTokens = (int)native->cached_tokens;
            CompletionTokens = (int)native->completion_tokens;
            ReasoningTokens = (int)native->reasoning_tokens;
            TimeToFirstToken = TimeSpan.FromTicks(checked((long)native->time_to_first_token_us * 10));
            NumLogprobs = (int)native->num_logprobs;
            NumPromptLogprobs = (int)native->num_prompt_logprobs;
            CumulativeLogprob = native->cumulative_logprob;
            Score = native->score;
        }

        // Each character of UTF-16 takes at least one byte of UTF-8.
        unsafe void SetText(byte* from, int length)
        {
            text = null;
            numChars = 0;
            if (length == 0) return;
            if (chars.Length < length) chars = new char[length];
            fixed (char* to = chars) numChars = Encoding.UTF8.GetChars(from, length, to, chars.Length);
        }

        /// <summary>Adds what a later output of the same completion says.</summary>
        internal void Append(Output next)
        {
            tokens.Append(next.TokenIds);
            logprobs.Append(next.Logprobs);
            topTokens.Append(next.TopTokens);
            topLogprobs.Append(next.TopLogprobs);
            if (numChars + next.numChars > chars.Length) Array.Resize(ref chars, Math.Max(numChars + next.numChars, 2 * chars.Length));
            next.TextSpan.CopyTo(new Span<char>(chars, numChars, next.numChars));
            numChars += next.numChars;
            text = null;
            if (!next.Embedding.IsEmpty) embedding = next.embedding;
            if (!next.Scores.IsEmpty) scores = next.scores;
            FinishReason = next.FinishReason;
            Error = next.Error;
            CompletionTokens = next.CompletionTokens;
            ReasoningTokens = next.ReasoningTokens;
            TimeToFirstToken = next.TimeToFirstToken;
            CumulativeLogprob = next.CumulativeLogprob;
            Score = next.Score;
        }
    }
}
