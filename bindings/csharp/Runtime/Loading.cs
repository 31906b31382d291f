// Where is the native library looked for, and what helps if it is not there?
//
// The runtime looks for it at the first call. It says at most a name when it finds none, so this says the files that it looks for and what
// each of them is. A resolver of .NET is no part of .NET Standard 2.1, nor of Mono and Unity.

using System;
using System.Collections.Generic;
using System.IO;
using System.Runtime.InteropServices;
using System.Text;

namespace Nanovllm
{
    internal static class Loading
    {
        static bool loaded;

        /// <summary>Calls the library once, so that what is missing is told before anything else happens.</summary>
        /// <exception cref="DllNotFoundException">There is no library that can be loaded. The message has each file that was looked for.</exception>
        internal static void Ensure()
        {
            if (loaded) return;
            try
            {
                Native.nvllm_abi_version();
                loaded = true;
            }
            catch (DllNotFoundException exception)
            {
                throw new DllNotFoundException(Message(exception), exception);
            }
            catch (BadImageFormatException exception)
            {
                throw new DllNotFoundException(Message(exception), exception);
            }
            catch (EntryPointNotFoundException exception)
            {
                throw new DllNotFoundException("a library with the name of libnanovllm was loaded, and it has no function nvllm_abi_version: " +
                    "it is another library, or on iOS it is not linked into the program.\n" + Message(exception), exception);
            }
        }

        static bool IsWindows => Path.DirectorySeparatorChar == '\\';
        static bool IsMac => !IsWindows && RuntimeInformation.IsOSPlatform(OSPlatform.OSX);
        static string FileName => IsWindows ? "nanovllm.dll" : IsMac ? "libnanovllm.dylib" : "libnanovllm.so";
        static string Variable => IsWindows ? "PATH" : IsMac ? "DYLD_LIBRARY_PATH" : "LD_LIBRARY_PATH";
        static string Platform => (IsWindows ? "win-" : IsMac ? "osx-" : "linux-") + RuntimeInformation.ProcessArchitecture.ToString().ToLowerInvariant();

        static string Message(Exception exception)
        {
            var message = new StringBuilder("the native library of libnanovllm could not be loaded for ").Append(Platform);
            message.Append(": ").Append(FileName).Append(", which the runtime looks for here:\n");
            string first = null;
            foreach (string folder in Folders())
            {
                first = first ?? folder;
                string file = Path.Combine(folder, FileName);
                message.Append("  ").Append(file).Append(File.Exists(file) ? ": is there, but " + WhyNot(file) : ": is not there").Append('\n');
            }
            message.Append("  the folders of the system").Append(IsWindows || IsMac ? "" : " (ldconfig -p lists their libraries)").Append('\n');
            message.Append("Put ").Append(FileName).Append(" of the same release into ").Append(first).Append(", or set ").Append(Variable);
            message.Append(" to the folder that has it before the program starts. In Unity: into Assets/Plugins/x86_64, for this platform in its import settings.\n");
            return message.Append("The runtime said: ").Append(exception.Message).ToString();
        }

        /// <summary>Those of the runtimes, in their order, each once.</summary>
        static List<string> Folders()
        {
            var folders = new List<string>();
            string assembly = null;
            try
            {
                assembly = Path.GetDirectoryName(typeof(Loading).Assembly.Location);
            }
            catch (NotSupportedException)
            {
                // An assembly that comes from memory has no file.
            }
            foreach (string folder in new[] { assembly, AppDomain.CurrentDomain.BaseDirectory })
            {
                if (string.IsNullOrEmpty(folder)) continue;
                Add(folders, folder);
                // .NET looks here, for the programs that a NuGet package is a part of.
                Add(folders, Path.Combine(folder, "runtimes", Platform, "native"));
            }
            Add(folders, PluginsOfUnity());
            foreach (string folder in (Environment.GetEnvironmentVariable(Variable) ?? "").Split(Path.PathSeparator)) Add(folders, folder);
            return folders;
        }

        static void Add(List<string> folders, string folder)
        {
            if (string.IsNullOrEmpty(folder)) return;
            try
            {
                folder = Path.GetFullPath(folder).TrimEnd(Path.DirectorySeparatorChar);
            }
            catch (Exception)
            {
                // What is no path stays as it was written.
            }
            if (!folders.Contains(folder)) folders.Add(folder);
        }

        /// <summary>Null outside Unity.</summary>
        static string PluginsOfUnity()
        {
            try
            {
                Type application = Type.GetType("UnityEngine.Application, UnityEngine.CoreModule");
                var data = (string)application?.GetProperty("dataPath")?.GetValue(null);
                return data == null ? null : Path.Combine(data, "Plugins", "x86_64");
            }
            catch (Exception)
            {
                // Not on the main thread.
                return null;
            }
        }

        /// <summary>What the system's loader says of a file.</summary>
        static string WhyNot(string file)
        {
            const int Now = 2;
            try
            {
                if (!IsWindows && !IsMac && dlopen(file, Now) == IntPtr.Zero) return "cannot be loaded: " + Marshal.PtrToStringAnsi(dlerror());
            }
            catch (Exception)
            {
                // A system with another loader.
            }
            return "was not loaded: it may be for another processor, or need a library that is missing";
        }

        [DllImport("libdl.so.2", CallingConvention = CallingConvention.Cdecl)]
        static extern IntPtr dlopen([MarshalAs(UnmanagedType.LPStr)] string file, int flags);

        [DllImport("libdl.so.2", CallingConvention = CallingConvention.Cdecl)]
        static extern IntPtr dlerror();
    }
}
