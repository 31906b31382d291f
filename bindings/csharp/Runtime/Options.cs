// How do the options of a C# program become those of the C API? Abi.cs has those that have one field; the others are here.

using System;
using System.Collections.Generic;

namespace Nanovllm
{
    public sealed partial class EngineConfig
    {
        /// <summary>Receives the fraction of the model that is loaded. What it throws ends the opening, and is thrown again.</summary>
        public Action<float> Progress { get; set; }

        internal unsafe void Fill(nvllm_engine_config* native, string modelPath, Borrowed memory)
        {
            Assign(native, memory);
            if (modelPath != null) native->model_path = memory.Text(modelPath, nameof(modelPath));
        }
    }

    public sealed partial class RequestOptions
    {
        /// <summary>What is added to the logits of tokens, after the penalties: finite, or minus infinity to exclude a token.</summary>
        public IReadOnlyDictionary<uint, float> LogitBias { get; set; }

        internal RequestOptions Clone() => (RequestOptions)MemberwiseClone();

        internal unsafe void Fill(nvllm_request_options* native, Borrowed memory)
        {
            Assign(native, memory);
            if (LogitBias == null) return;
            var tokens = new uint[LogitBias.Count];
            var values = new float[tokens.Length];
            int count = 0;
            foreach (KeyValuePair<uint, float> bias in LogitBias)
            {
                tokens[count] = bias.Key;
                values[count++] = bias.Value;
            }
            native->bias_tokens = (uint*)memory.Pinned(tokens, count);
            native->bias_values = (float*)memory.Pinned(values, count);
            native->num_bias = (UIntPtr)count;
        }
    }
}
