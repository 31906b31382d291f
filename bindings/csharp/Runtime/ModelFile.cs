// How do the files of a model get to the C API, where they are given and not found by their path?

using System;
using System.Collections.Generic;
using System.IO;
using System.Runtime.InteropServices;

namespace Nanovllm
{
    /// <summary>A file of a model: memory, or a range of an open file, such as a part of a pack file.</summary>
    public sealed class ModelFile
    {
        readonly byte[] bytes;
        readonly IntPtr data;
        readonly SafeHandle descriptor;
        readonly ulong offset, size;

        ModelFile(string name, byte[] bytes, IntPtr data, SafeHandle descriptor, long offset, long size)
        {
            if (name == null) throw new ArgumentNullException(nameof(name));
            if (offset < 0 || size < 0)
                throw new ArgumentOutOfRangeException(nameof(size), name + " begins at " + offset + " and has " + size + " bytes, but neither can be negative");
            Name = name;
            this.bytes = bytes;
            this.data = data;
            this.descriptor = descriptor;
            this.offset = (ulong)offset;
            this.size = (ulong)size;
        }

        /// <summary>The name that the file has in a model folder, such as "config.json", or any name that ends in ".gguf".</summary>
        public string Name { get; }

        /// <summary>An array, which is pinned until the engine is freed, and must not change until then. With LoadMode.Read: until it is open.</summary>
        public static ModelFile FromMemory(string name, byte[] bytes) =>
            new ModelFile(name, bytes ?? throw new ArgumentNullException(nameof(bytes)), IntPtr.Zero, null, 0, bytes.Length);

        /// <summary>Memory of the caller, such as a mapped file. It must neither change nor be freed until the engine is freed; with LoadMode.Read
        /// until it is open.</summary>
        public static ModelFile FromMemory(string name, IntPtr data, long size) => new ModelFile(name, null, data, null, 0, size);

        /// <summary>A range of an open file, which can be closed when the engine is open.</summary>
        public static ModelFile FromRange(string name, FileStream file, long offset, long size) =>
            new ModelFile(name, null, IntPtr.Zero, (file ?? throw new ArgumentNullException(nameof(file))).SafeFileHandle, offset, size);

        /// <summary>Fills in one struct per file. Arrays are pinned by <paramref name="pins"/>, all else is borrowed.</summary>
        internal static unsafe nvllm_model_file[] Array(IReadOnlyList<ModelFile> files, Borrowed memory, List<GCHandle> pins)
        {
            var array = new nvllm_model_file[files.Count];
            for (int i = 0; i < array.Length; i++)
            {
                ModelFile file = files[i] ?? throw new ArgumentNullException(nameof(files), "files[" + i + "] is null");
                nvllm_model_file native;
                Native.nvllm_model_file_init(&native, (UIntPtr)sizeof(nvllm_model_file));
                native.name = memory.Text(file.Name, nameof(Name));
                native.size = file.size;
                if (file.descriptor != null)
                {
                    native.kind = (int)FileKind.Range;
                    native.descriptor = (long)file.descriptor.DangerousGetHandle();
                    native.offset = file.offset;
                }
                else if (file.bytes != null && file.bytes.Length > 0)
                {
                    GCHandle pin = GCHandle.Alloc(file.bytes, GCHandleType.Pinned);
                    pins.Add(pin);
                    native.data = pin.AddrOfPinnedObject();
                }
                else
                {
                    native.data = file.data;
                }
                array[i] = native;
            }
            return array;
        }

        /// <summary>Keeps the descriptors open while C uses them.</summary>
        internal static void KeepAlive(IReadOnlyList<ModelFile> files)
        {
            foreach (ModelFile file in files) GC.KeepAlive(file.descriptor);
        }
    }
}
