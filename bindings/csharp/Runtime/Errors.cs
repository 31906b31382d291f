// Why did a call fail?

using System;

namespace Nanovllm
{
    /// <summary>A call failed. The message says what was wanted, what was found, and which option changes it.</summary>
    public sealed class NanovllmException : Exception
    {
        internal NanovllmException(int status, string message, int nativeCode = 0) : base(message)
        {
            Status = (Status)status;
            NativeCode = nativeCode;
        }

        /// <summary>The status that the call returned. A later library may have values that this enumeration does not.</summary>
        public Status Status { get; }

        /// <summary>errno, the value of GetLastError() or the error code of the device; 0 if there is none.</summary>
        public int NativeCode { get; }
    }

    internal static unsafe class Check
    {
        internal static void Succeeded(int status, nvllm_error* error)
        {
            if (status < 0) throw new NanovllmException(status, Utf8.Terminated(error->message), error->native_code);
        }

        /// <summary>As the other, and false for NotFound.</summary>
        internal static bool Found(int status, nvllm_error* error)
        {
            if (status == (int)Status.NotFound) return false;
            Succeeded(status, error);
            return true;
        }
    }
}
