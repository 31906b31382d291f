// How does C call C#? By static methods, because IL2CPP calls no others, whose user_data is the handle of a receiver.
//
// No exception passes through C: a receiver keeps it, and the method that entered C throws it again after C has returned.

using System;
using System.Runtime.ExceptionServices;
using System.Runtime.InteropServices;

namespace Nanovllm
{
    /// <summary>IL2CPP finds this attribute by its name.</summary>
    [AttributeUsage(AttributeTargets.Method)]
    internal sealed class MonoPInvokeCallbackAttribute : Attribute
    {
        public MonoPInvokeCallbackAttribute(Type type) { }
    }

    /// <summary>What C calls until this is disposed.</summary>
    internal sealed class Receiver<T> : IDisposable
    {
        readonly Action<T> action;
        GCHandle handle;
        ExceptionDispatchInfo raised;

        /// <param name="type">Weak where the receiver outlives the call, so that it does not keep alive an engine that its action refers to.</param>
        internal Receiver(Action<T> action, GCHandleType type)
        {
            this.action = action;
            handle = GCHandle.Alloc(this, type);
        }

        internal IntPtr UserData => GCHandle.ToIntPtr(handle);

        /// <summary>0, or 1 if the action threw: C then cancels.</summary>
        internal static int Receive(IntPtr userData, T value)
        {
            var receiver = (Receiver<T>)GCHandle.FromIntPtr(userData).Target;
            if (receiver == null) return 0;
            try
            {
                receiver.action(value);
                return 0;
            }
            catch (Exception exception)
            {
                receiver.raised = ExceptionDispatchInfo.Capture(exception);
                return 1;
            }
        }

        internal void Rethrow()
        {
            ExceptionDispatchInfo exception = raised;
            raised = null;
            exception?.Throw();
        }

        public void Dispose()
        {
            if (handle.IsAllocated) handle.Free();
        }
    }

    internal static unsafe class Callbacks
    {
        // The delegates stay, and so do the addresses of their code.
        static readonly nvllm_progress_fn LoadingDelegate = OnLoading;
        static readonly nvllm_generate_progress_fn GeneratingDelegate = OnGenerating;
        static readonly nvllm_output_fn OutputDelegate = OnOutput;
        static readonly nvllm_log_fn LogDelegate = OnLog;

        internal static readonly IntPtr Loading = Marshal.GetFunctionPointerForDelegate(LoadingDelegate);
        internal static readonly IntPtr Generating = Marshal.GetFunctionPointerForDelegate(GeneratingDelegate);
        internal static readonly IntPtr Output = Marshal.GetFunctionPointerForDelegate(OutputDelegate);
        internal static readonly IntPtr Log = Marshal.GetFunctionPointerForDelegate(LogDelegate);

        [MonoPInvokeCallback(typeof(nvllm_progress_fn))]
        static int OnLoading(float fraction, IntPtr userData) => Receiver<float>.Receive(userData, fraction);

        [MonoPInvokeCallback(typeof(nvllm_generate_progress_fn))]
        static int OnGenerating(Progress* progress, IntPtr userData) => Receiver<Progress>.Receive(userData, *progress);

        [MonoPInvokeCallback(typeof(nvllm_output_fn))]
        static int OnOutput(nvllm_output* output, IntPtr userData) => Receiver<IntPtr>.Receive(userData, (IntPtr)output);

        [MonoPInvokeCallback(typeof(nvllm_log_fn))]
        static void OnLog(int level, byte* message, UIntPtr length, IntPtr userData)
        {
            try
            {
                Library.Receiver?.Invoke((LogLevel)level, Utf8.Text(message, length));
            }
            catch (Exception)
            {
                // A message belongs to no call that could throw.
            }
        }
    }
}
