// What concerns the library and no engine: versions, messages, quantizing folders.

using System;
using System.Runtime.InteropServices;

namespace Nanovllm
{
    public static unsafe class Library
    {
        const uint AbiVersion = 0;
        static readonly object Gate = new object();
        internal static volatile Action<LogLevel, string> Receiver;

        /// <summary>The version of the loaded library, such as "0.1.0".</summary>
        public static string Version
        {
            get
            {
                Loading.Ensure();
                return Utf8.Terminated(Native.nvllm_version());
            }
        }

        /// <summary>A JSON object: what the library was built with, and what it finds on this machine.</summary>
        public static string BuildInfo
        {
            get
            {
                Loading.Ensure();
                return Utf8.Terminated(Native.nvllm_build_info());
            }
        }

        /// <summary>Sends messages of at most <paramref name="level"/> to a receiver; null ends that. It is called on threads that are inside a
        /// call of the library, when that call is about to return. What it throws is dropped.</summary>
        public static void SetLog(Action<LogLevel, string> receiver, LogLevel level = LogLevel.Info)
        {
            Loading.Ensure();
            lock (Gate)
            {
                if (receiver == null) Native.nvllm_set_log_callback(IntPtr.Zero, IntPtr.Zero, 0);
                Receiver = receiver;
                // An editor that reloads its scripts keeps the library, but not the delegates.
                AppDomain.CurrentDomain.DomainUnload -= StopLog;
                AppDomain.CurrentDomain.DomainUnload += StopLog;
                if (receiver != null) Native.nvllm_set_log_callback(Callbacks.Log, IntPtr.Zero, (int)level);
            }
        }

        static void StopLog(object sender, EventArgs arguments) => Native.nvllm_set_log_callback(IntPtr.Zero, IntPtr.Zero, 0);

        /// <summary>Quantizes a model folder, and writes it as a new folder.</summary>
        public static void QuantizeFolder(string modelPath, string to, Quantization quantization, Action<float> progress = null)
        {
            CheckVersion();
            nvllm_error error;
            using (var memory = new Borrowed())
            using (var receiver = new Receiver<float>(progress ?? (_ => { }), GCHandleType.Normal))
            {
                int status = Native.nvllm_quantize_folder(memory.Text(modelPath, nameof(modelPath)), memory.Text(to, nameof(to)), (int)quantization,
                    Callbacks.Loading, receiver.UserData, &error);
                if (status < 0) receiver.Rethrow();
                Check.Succeeded(status, &error);
            }
        }

        internal static void CheckVersion()
        {
            Loading.Ensure();
            uint found = Native.nvllm_abi_version();
            if (found != AbiVersion)
                throw new NotSupportedException("the library has ABI version " + found + ", and this binding needs " + AbiVersion + ": use those of one release");
        }
    }
}
