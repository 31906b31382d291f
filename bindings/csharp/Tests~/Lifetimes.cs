// What an engine opens from, who may use it at once, and when it ends.

using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.IO;
using System.IO.MemoryMappedFiles;
using System.Linq;
using System.Reflection;
using System.Runtime.InteropServices;
using System.Text;
using System.Text.RegularExpressions;
using System.Threading;
using System.Threading.Tasks;
using Nanovllm;

static class Opening
{
    public static void Errors()
    {
        NanovllmException exception = Expect.Throws<NanovllmException>(() => new Engine("/nonexistent"));
        Expect.Equal(exception.Status, Status.Io);
        Expect.Equal(exception.NativeCode, 2);
        Expect.True(exception.Message.Contains("/nonexistent"), exception.Message);
        Expect.Throws<ArgumentNullException>(() => new Engine((string)null));
        Expect.Throws<ArgumentException>(() => new Engine("a\0b"));
        Expect.Status(Status.InvalidArgument, () => new Engine(Program.Model, new EngineConfig { KvBlockSize = 3 }));
    }

    public static void ProgressIsReported()
    {
        float last = 0;
        new Engine(Program.Model, new EngineConfig { Device = Device.Cpu, Progress = fraction => last = fraction }).Dispose();
        Expect.Equal(last, 1f);
        Expect.Throws<TimeoutException>(() => new Engine(Program.Model, new EngineConfig { Progress = fraction => throw new TimeoutException() }));
    }

    public static void MessagesAreReceived()
    {
        var seen = new List<string>();
        Library.SetLog((level, message) => { lock (seen) seen.Add(level + message); throw new Exception("dropped"); });
        Demo.Open().Dispose();
        Library.SetLog(null);
        int count = seen.Count;
        Expect.True(seen.Any(message => message.StartsWith("Info")), string.Join("; ", seen));
        Demo.Open().Dispose();
        Expect.Equal(seen.Count, count);
    }

    public static void ASmallModelIsQuantized()
    {
        string folder = Path.Combine(Path.GetTempPath(), "nanovllm-csharp-" + Process.GetCurrentProcess().Id);
        try
        {
            float last = 0;
            Library.QuantizeFolder(Program.Model, folder, Quantization.Int8, fraction => last = fraction);
            Expect.Equal(last, 1f);
            using (var engine = new Engine(folder, Demo.OneThread)) Expect.Equal(engine.GetModelInfo().AttentionCoding, Coding.Int8);
            Expect.Status(Status.Model, () => Library.QuantizeFolder(Program.Model, folder, Quantization.Int8));
        }
        finally
        {
            Directory.Delete(folder, true);
        }
    }
}

static class FilesOfAModel
{
    static readonly string[] Paths = Directory.GetFiles(Program.Model);

    static uint[] Answer(Engine engine) => engine.Generate(Demo.Prompt(engine, Demo.Primes), Demo.Greedy(20))[0].TokenIds.ToArray();

    static uint[] Wanted()
    {
        using (Engine engine = Demo.Open()) return Answer(engine);
    }

    public static void Arrays()
    {
        uint[] wanted = Wanted();
        var arrays = Paths.ToDictionary(Path.GetFileName, File.ReadAllBytes);
        foreach (LoadMode mode in new[] { LoadMode.Map, LoadMode.Read })
        {
            var files = arrays.Select(file => ModelFile.FromMemory(file.Key, file.Value)).ToList();
            using (var engine = new Engine(files, null, new EngineConfig { Device = Device.Cpu, NumThreads = 1, LoadMode = mode }))
            {
                if (mode == LoadMode.Read) Array.Clear(arrays["model.safetensors"], 0, arrays["model.safetensors"].Length);
                GC.Collect();
                Expect.Sequence(Answer(engine), wanted);
            }
        }
    }

    public static void RangesOfAPackFile()
    {
        uint[] wanted = Wanted();
        string path = Path.GetTempFileName();
        try
        {
            var ranges = new List<(string name, long offset, long size)>();
            using (FileStream pack = File.Create(path))
            {
                foreach (string one in Paths)
                {
                    byte[] bytes = File.ReadAllBytes(one);
                    pack.WriteByte((byte)'-');
                    ranges.Add(("folder/" + Path.GetFileName(one), pack.Position, bytes.Length));
                    pack.Write(bytes, 0, bytes.Length);
                }
            }
            Engine opened;
            using (FileStream pack = File.OpenRead(path))
                opened = new Engine(ranges.Select(r => ModelFile.FromRange(r.name, pack, r.offset, r.size)).ToList(), "folder", Demo.OneThread);
            using (opened) Expect.Sequence(Answer(opened), wanted);
            using (var mapping = MemoryMappedFile.CreateFromFile(path, FileMode.Open))
            using (var view = mapping.CreateViewAccessor())
            {
                IntPtr at = view.SafeMemoryMappedViewHandle.DangerousGetHandle();
                var parts = ranges.Select(r => ModelFile.FromMemory(r.name, IntPtr.Add(at, (int)r.offset), r.size)).ToList();
                using (var engine = new Engine(parts, "folder", Demo.OneThread)) Expect.Sequence(Answer(engine), wanted);
            }
        }
        finally
        {
            File.Delete(path);
        }
    }

    public static void WhatIsRefused()
    {
        Action<Status, ModelFile[]> refused = (status, files) => Expect.Status(status, () => new Engine(files));
        refused(Status.InvalidArgument, new[] { ModelFile.FromMemory("../config.json", new byte[0]) });
        refused(Status.Model, new[] { ModelFile.FromMemory("config.json", new byte[0]) });
        refused(Status.Model, new ModelFile[0]);
        Expect.Throws<ArgumentNullException>(() => ModelFile.FromMemory("config.json", null));
        Expect.Throws<ArgumentOutOfRangeException>(() => ModelFile.FromMemory("config.json", IntPtr.Zero, -1));
        Expect.Throws<ArgumentException>(() => new Engine(new[] { ModelFile.FromMemory("a\0b", new byte[1]) }));
        ArgumentNullException missing = Expect.Throws<ArgumentNullException>(() => new Engine(new[] { ModelFile.FromMemory("config.json", new byte[1]), null }));
        Expect.True(missing.ParamName == "files" && missing.Message.Contains("files[1]"), missing.Message);
        using (FileStream file = File.OpenRead(Paths[0]))
            refused(Status.Model, new[] { ModelFile.FromRange("config.json", file, 0, file.Length + 1) });
    }
}

static class Disposing
{
    public static void ADisposedEngineSaysSo()
    {
        Engine engine = Demo.Open();
        engine.Dispose();
        engine.Dispose();
        Expect.Throws<ObjectDisposedException>(() => engine.AddRequest("Hello"));
        Expect.Throws<ObjectDisposedException>(() => engine.Step());
    }

    public static void WhileRequestsRun()
    {
        Engine engine = Demo.Open();
        for (int i = 0; i < 4; i++) engine.AddRequest("Hello", Demo.Endless());
        var stepping = new Thread(() =>
        {
            try
            {
                while (true) engine.Step(TimeSpan.FromMilliseconds(20));
            }
            catch (ObjectDisposedException)
            {
            }
        });
        stepping.Start();
        Thread.Sleep(50);
        engine.Dispose();
        Expect.True(stepping.Join(10000), "the thread ended");
    }

    public static void InsideACallback()
    {
        Engine engine = Demo.Open();
        engine.SetOutputReceiver(output => engine.Dispose());
        engine.AddRequest("Hello", Demo.Endless());
        Expect.Throws<ObjectDisposedException>(() => { while (true) engine.Step(); });
    }

    public static void BesideAStream()
    {
        Engine engine = Demo.Open();
        Expect.Throws<ObjectDisposedException>(() =>
        {
            foreach (Output output in engine.Stream("Hello", Demo.Endless())) engine.Dispose();
        });
    }

    public static void ByTheCollector()
    {
        var weak = new List<WeakReference>();
        for (int i = 0; i < 8; i++) weak.Add(Forgotten());
        for (int i = 0; i < 20 && weak.Any(one => one.IsAlive); i++)
        {
            GC.Collect();
            GC.WaitForPendingFinalizers();
        }
        // A conservative scan of the stack may keep one.
        Expect.True(weak.Count(one => one.IsAlive) <= 2, weak.Count(one => one.IsAlive) + " engines are alive");
    }

    static WeakReference Forgotten()
    {
        WeakReference weak = null;
        // Another thread's stack holds no reference that is left over.
        var thread = new Thread(() =>
        {
            Engine engine = Demo.Open();
            engine.SetOutputReceiver(output => engine.GetStats());
            engine.AddRequest("Hello", Demo.Endless());
            engine.Step();
            weak = new WeakReference(engine);
        });
        thread.Start();
        thread.Join();
        return weak;
    }
}

static class Threads
{
    public static void RequestsComeFromAnyThread()
    {
        using (Engine engine = Demo.Open())
        {
            uint[] wanted = engine.Generate("Hello", Demo.Greedy(6))[0].TokenIds.ToArray();
            var ids = new HashSet<ulong>();
            int failures = 0;
            var threads = Enumerable.Range(0, 8).Select(number => new Thread(() =>
            {
                try
                {
                    for (int i = 0; i < 20; i++)
                    {
                        ulong id = engine.AddRequest("Hello", Demo.Greedy(6));
                        lock (ids) ids.Add(id);
                        engine.Tokenize("some text " + i);
                        engine.GetStats();
                        if (i % 5 == 4) engine.Cancel(id);
                    }
                }
                catch (Exception)
                {
                    Interlocked.Increment(ref failures);
                }
            })).ToList();
            threads.ForEach(thread => thread.Start());
            var ended = new HashSet<ulong>();
            var tokens = new Dictionary<ulong, List<uint>>();
            while (threads.Any(thread => thread.IsAlive) || !engine.IsFinished)
            {
                engine.Step();
                for (Output output = null; engine.TryPoll(ref output);)
                {
                    if (!tokens.ContainsKey(output.RequestId)) tokens[output.RequestId] = new List<uint>();
                    tokens[output.RequestId].AddRange(output.TokenIds.ToArray());
                    if (!output.Finished) continue;
                    ended.Add(output.RequestId);
                    if (output.FinishReason == Finish.Length) Expect.Sequence(tokens[output.RequestId], wanted);
                }
            }
            Expect.Equal(failures, 0);
            Expect.True(ended.SetEquals(ids) && ids.Count == 160, "all ended");
        }
    }

    public static void TwoThreadsCannotStep()
    {
        using (Engine engine = Demo.Open())
        {
            engine.AddRequest("Hello", Demo.Endless());
            engine.SetOutputReceiver(output => Expect.Status(Status.Busy, () => engine.Step()));
            engine.Step();
            engine.Step();
        }
    }

    public static void StreamsAreReadByOneThreadAtATime()
    {
        using (Engine engine = Demo.Open())
        {
            int wrong = 0;
            for (int round = 0; round < 25; round++)
            {
                IEnumerable<Output> stream = engine.Stream("Hello", Demo.Greedy(6));
                var threads = Enumerable.Range(0, 4).Select(i => new Thread(() =>
                {
                    try
                    {
                        if (stream.Last().CompletionTokens != 6) Interlocked.Increment(ref wrong);
                    }
                    catch (NanovllmException exception) when (exception.Status == Status.Busy)
                    {
                    }
                    catch (Exception)
                    {
                        Interlocked.Increment(ref wrong);
                    }
                }) { IsBackground = true }).ToList();
                threads.ForEach(thread => thread.Start());
                Expect.True(threads.All(thread => thread.Join(20000)), "it is read or refused, in round " + round);
            }
            Expect.Equal(wrong, 0);
            Expect.Equal(Demo.Run(engine).Count, 0);
            engine.Generate(new[] { "Hello" }, Demo.Greedy(2), progress => Expect.Status(Status.Busy, () => engine.Stream("Hello", Demo.Endless()).Any()));
            Expect.True(engine.IsFinished, "what was refused was not added");
        }
    }

    public static void AStreamWhoseOutputsAreGoneEnds()
    {
        using (Engine engine = Demo.Open())
        {
            IEnumerator<Output> stream = engine.Stream("Hello", Demo.Greedy(3)).GetEnumerator();
            Expect.True(stream.MoveNext(), "it begins");
            BindingFlags hidden = BindingFlags.Instance | BindingFlags.NonPublic;
            object inbox = typeof(Engine).GetField("inbox", hidden).GetValue(engine);
            ((System.Collections.IDictionary)inbox.GetType().GetField("streams", hidden).GetValue(inbox)).Clear();
            Expect.Throws<InvalidOperationException>(() => { while (stream.MoveNext()) ; });
        }
    }

    public static void EnginesAreIndependent()
    {
        var answers = new uint[3][];
        var threads = Enumerable.Range(0, answers.Length).Select(i => new Thread(() =>
        {
            using (Engine engine = Demo.Open()) answers[i] = engine.Generate("Hello", Demo.Greedy(50))[0].TokenIds.ToArray();
        })).ToList();
        threads.ForEach(thread => thread.Start());
        threads.ForEach(thread => thread.Join());
        foreach (uint[] answer in answers) Expect.Sequence(answer, answers[0]);
    }

    public static void TheCollectorRunsBesideCallbacks()
    {
        bool stop = false;
        int messages = 0;
        var collector = new Thread(() =>
        {
            while (!Volatile.Read(ref stop))
            {
                GC.Collect();
                GC.KeepAlive(new byte[1 << 16]);
            }
        });
        collector.Start();
        try
        {
            Library.SetLog((level, message) => messages++, LogLevel.Debug);
            using (Engine engine = Demo.Open())
            {
                string text = engine.Generate("Hello", Demo.Greedy(20))[0].Text;
                for (int round = 0; round < 20; round++)
                {
                    var found = new StringBuilder();
                    engine.SetOutputReceiver(output => found.Append(output.Text));
                    engine.AddRequest("Hello", new RequestOptions { Temperature = 0, MaxTokens = 20, Stop = new[] { "never seen" } });
                    while (!engine.IsFinished) engine.Step();
                    Expect.Equal(found.ToString(), text);
                    engine.Generate(new[] { "Hello", "there" }, Demo.Greedy(3), progress => { });
                }
            }
            Expect.True(messages > 0, "messages came");
        }
        finally
        {
            Library.SetLog(null);
            Volatile.Write(ref stop, true);
            collector.Join();
        }
    }
}

static class Asynchronous
{
    static async Task<List<uint>> Read(AsyncEngine engine, string prompt, RequestOptions options, CancellationToken cancellation = default, int limit = int.MaxValue)
    {
        var tokens = new List<uint>();
        IAsyncEnumerator<Output> outputs = engine.Stream(prompt, options).GetAsyncEnumerator(cancellation);
        try
        {
            while (tokens.Count < limit && await outputs.MoveNextAsync()) tokens.AddRange(outputs.Current.TokenIds.ToArray());
        }
        finally
        {
            await outputs.DisposeAsync();
        }
        return tokens;
    }

    static async Task<E> Throws<E>(Task task) where E : Exception
    {
        try
        {
            await task;
        }
        catch (E exception)
        {
            return exception;
        }
        throw new Exception("nothing threw " + typeof(E).Name);
    }

    static async Task Finished(AsyncEngine engine)
    {
        for (int i = 0; i < 200 && !engine.Engine.IsFinished; i++) await Task.Delay(10);
        Expect.True(engine.Engine.IsFinished, "the requests were cancelled");
    }

    public static async Task TasksShareAnEngine()
    {
        using (var engine = new AsyncEngine(Demo.Open()))
        {
            Output alone = (await engine.Generate("Hello", Demo.Greedy(16))).Single();
            Expect.Equal(alone.CompletionTokens, 16);
            Output[][] together = await Task.WhenAll(Enumerable.Range(0, 20).Select(i => engine.Generate("Hello", Demo.Greedy(16))));
            foreach (Output[] one in together)
            {
                Expect.Sequence(one.Single().TokenIds.ToArray(), alone.TokenIds.ToArray());
                Expect.Equal(one.Single().Text, alone.Text);
            }
            Expect.Sequence(await Read(engine, "Hello", Demo.Greedy(16)), alone.TokenIds.ToArray());
            Output[] several = await engine.Generate("Hello", new RequestOptions { N = 3, MaxTokens = 2, Temperature = 1 });
            Expect.Sequence(several.Select(output => output.Index), new[] { 0, 1, 2 });
        }
    }

    public static async Task LeavingAndCancelling()
    {
        using (var engine = new AsyncEngine(Demo.Open()))
        {
            Expect.True((await Read(engine, "Hello", Demo.Endless(), limit: 3)).Count >= 3, "it ran");
            await Finished(engine);
            using (var source = new CancellationTokenSource(100))
            {
                await Throws<OperationCanceledException>(Read(engine, "Hello", Demo.Endless(), source.Token));
                await Finished(engine);
                await Throws<OperationCanceledException>(engine.Generate("Hello", Demo.Greedy(1), source.Token));
            }
        }
    }

    public static async Task DisposingEndsStreams()
    {
        var engine = new AsyncEngine(Demo.Open());
        Task<List<uint>> reading = Read(engine, "Hello", Demo.Endless());
        await Task.Delay(50);
        engine.Dispose();
        engine.Dispose();
        await Throws<ObjectDisposedException>(reading);
        await Throws<ObjectDisposedException>(engine.Generate("Hello"));
    }

    public static async Task AWrongOptionFailsItsRequestAlone()
    {
        using (var engine = new AsyncEngine(Demo.Open()))
        {
            Expect.Equal((await Throws<NanovllmException>(engine.Generate("Hello", new RequestOptions { TopP = 7 }))).Status, Status.InvalidArgument);
            Expect.Equal((await Throws<NanovllmException>(engine.Generate("Hello", new RequestOptions { N = uint.MaxValue }))).Status, Status.InvalidArgument);
            Expect.Equal((await engine.Generate("Hello", Demo.Greedy(2)))[0].CompletionTokens, 2);
        }
    }

    // A stream whose request is added when the test says so, as one is whose structure takes long to compile.
    static IAsyncEnumerator<Output> Slow(AsyncEngine engine, ManualResetEventSlim goOn, List<ulong> added, RequestOptions options)
    {
        Func<Engine, RequestOptions, ulong> add = (native, given) =>
        {
            goOn.Wait();
            ulong id = native.AddRequest("Hello", given);
            lock (added) added.Add(id);
            return id;
        };
        MethodInfo stream = typeof(AsyncEngine).GetMethod("Stream", BindingFlags.NonPublic | BindingFlags.Instance);
        return ((IAsyncEnumerable<Output>)stream.Invoke(engine, new object[] { add, options })).GetAsyncEnumerator();
    }

    static async Task<int> Count(IAsyncEnumerator<Output> outputs, Task<bool> first)
    {
        int tokens = 0;
        for (bool more = await first; more; more = await outputs.MoveNextAsync()) tokens += outputs.Current.TokenIds.Length;
        await outputs.DisposeAsync();
        return tokens;
    }

    public static async Task ARequestThatIsAddedSlowlyDelaysNobody()
    {
        var added = new List<ulong>();
        using (var goOn = new ManualResetEventSlim())
        using (var engine = new AsyncEngine(Demo.Open()))
        {
            var options = new RequestOptions { MaxTokens = 4, IgnoreEos = true, Structure = "[a-z ]*", StructureKind = StructureKind.Regex };
            IAsyncEnumerator<Output>[] slow = Enumerable.Range(0, 6).Select(i => Slow(engine, goOn, added, options)).ToArray();
            Task<bool>[] first = slow.Select(outputs => outputs.MoveNextAsync().AsTask()).ToArray();
            // Its caller's, who may do with it what it likes once a stream has begun.
            options.MaxTokens = 3;
            Expect.Equal((await engine.Generate("Hello", Demo.Greedy(2)))[0].CompletionTokens, 2);
            Expect.True(first.All(task => !task.IsCompleted) && added.Count == 0, "they wait");
            goOn.Set();
            int[] tokens = await Task.WhenAll(slow.Zip(first, Count));
            Expect.Sequence(tokens, Enumerable.Repeat(4, 6));
        }
    }

    public static async Task AStreamThatIsLeftWhileItIsAddedLeavesNoRequest()
    {
        var added = new List<ulong>();
        using (var goOn = new ManualResetEventSlim())
        using (var engine = new AsyncEngine(Demo.Open()))
        {
            IAsyncEnumerator<Output> slow = Slow(engine, goOn, added, Demo.Endless());
            _ = slow.MoveNextAsync();
            await Task.Delay(50);
            await slow.DisposeAsync();
            Expect.Equal(added.Count, 0);
            goOn.Set();
            for (int i = 0; i < 500 && !(added.Count == 1 && engine.Engine.IsFinished); i++) await Task.Delay(10);
            Expect.Equal(added.Count, 1);
            Expect.True(engine.Engine.IsFinished && !engine.Engine.Cancel(added[0]), "it was cancelled");
        }
    }

    public static async Task DisposingEndsStreamsThatAreBeingAdded()
    {
        var added = new List<ulong>();
        using (var goOn = new ManualResetEventSlim())
        {
            var engine = new AsyncEngine(Demo.Open());
            IAsyncEnumerator<Output> slow = Slow(engine, goOn, added, Demo.Endless());
            Task<bool> first = slow.MoveNextAsync().AsTask();
            engine.Dispose();
            await Throws<ObjectDisposedException>(first);
            goOn.Set();
            await slow.DisposeAsync();
            await Task.Delay(50);
        }
    }

    public static async Task OutputsThatComeBeforeTheRequestIsKnownReachTheirStream()
    {
        using (var engine = new AsyncEngine(Demo.Open()))
        {
            Func<Engine, RequestOptions, ulong> add = (native, given) =>
            {
                ulong id = native.AddRequest("Hello", given);
                // Until the library has nothing of it any more.
                while (!native.IsFinished || native.GetStats().GeneratedTokens < 5) Thread.Sleep(1);
                return id;
            };
            MethodInfo stream = typeof(AsyncEngine).GetMethod("Stream", BindingFlags.NonPublic | BindingFlags.Instance);
            var options = new RequestOptions { MaxTokens = 5, IgnoreEos = true };
            IAsyncEnumerator<Output> outputs = ((IAsyncEnumerable<Output>)stream.Invoke(engine, new object[] { add, options })).GetAsyncEnumerator();
            Expect.Equal(await Count(outputs, outputs.MoveNextAsync().AsTask()), 5);
        }
    }
}

static class Waiting
{
    public static void ItTellsWhetherThereIsSomethingToDo()
    {
        using (var engine = Demo.Open())
        {
            Output output = null;
            Expect.True(!engine.Wait(TimeSpan.Zero) && !engine.Wait(TimeSpan.FromMilliseconds(20)), "nothing was added");
            engine.AddRequest("Hello", Demo.Greedy(2));
            Expect.True(engine.Wait(), "a request waits");
            while (engine.GetStats().Running + engine.GetStats().Waiting > 0) engine.Step();
            Expect.True(engine.Wait(), "outputs wait");
            while (engine.TryPoll(ref output)) { }
            Expect.True(!engine.Wait(TimeSpan.Zero), "all was polled");
            engine.Wake();
            Expect.True(!engine.Wait(), "woken before");
        }
    }

    public static void WakingAndDisposingEndWaits()
    {
        foreach (bool disposes in new[] { false, true })
        {
            var engine = Demo.Open();
            int woken = 0, ended = 0;
            Thread[] threads = Enumerable.Range(0, disposes ? 4 : 1).Select(i => new Thread(() =>
            {
                try
                {
                    if (!engine.Wait()) Interlocked.Increment(ref woken);
                }
                catch (ObjectDisposedException)
                {
                    Interlocked.Increment(ref ended);
                }
            })).ToArray();
            foreach (Thread thread in threads) thread.Start();
            Thread.Sleep(30);
            if (disposes) engine.Dispose();
            else engine.Wake();
            foreach (Thread thread in threads) thread.Join();
            Expect.Equal(disposes ? ended : woken, threads.Length);
            engine.Dispose();
            Expect.Throws<ObjectDisposedException>(() => engine.Wait());
            Expect.Throws<ObjectDisposedException>(() => engine.Wake());
        }
    }
}
