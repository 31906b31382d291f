// The binding with the demo model. Each method of a test class is a test; one program runs all. Its arguments:
//   MODEL   folder of the demo model
//   ABI     tests/capi/abi.h
//   C       the example program generate, or nothing

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

static class Program
{
    internal static string Model, Abi, GenerateInC;

    static int Main(string[] arguments)
    {
        Model = arguments[0];
        Abi = arguments[1];
        GenerateInC = arguments.Length > 2 ? arguments[2] : null;
        int passed = 0, failed = 0;
        foreach (Type type in new[] { typeof(Layout), typeof(Generating), typeof(Opening), typeof(FilesOfAModel), typeof(Disposing), typeof(Threads), typeof(Waiting), typeof(Asynchronous), typeof(Chats), typeof(Answers) })
        {
            foreach (MethodInfo test in type.GetMethods(BindingFlags.Public | BindingFlags.Static | BindingFlags.DeclaredOnly))
            {
                try
                {
                    (test.Invoke(null, null) as Task)?.GetAwaiter().GetResult();
                    passed++;
                }
                catch (Exception exception)
                {
                    Console.Error.WriteLine(type.Name + "." + test.Name + ": " + (exception is TargetInvocationException ? exception.InnerException : exception));
                    failed++;
                }
            }
        }
        Console.WriteLine(passed + " passed, " + failed + " failed");
        return failed == 0 ? 0 : 1;
    }
}

static class Expect
{
    internal static void True(bool value, string what)
    {
        if (!value) throw new Exception("not so: " + what);
    }

    internal static void Equal<T>(T found, T wanted)
    {
        if (!EqualityComparer<T>.Default.Equals(found, wanted)) throw new Exception("wanted " + wanted + ", found " + found);
    }

    internal static void Sequence<T>(IEnumerable<T> found, IEnumerable<T> wanted)
    {
        if (!found.SequenceEqual(wanted)) throw new Exception("wanted " + string.Join(" ", wanted) + ", found " + string.Join(" ", found));
    }

    internal static E Throws<E>(Action action) where E : Exception
    {
        try
        {
            action();
        }
        catch (E exception)
        {
            return exception;
        }
        throw new Exception("nothing threw " + typeof(E).Name);
    }

    internal static void Status(Status status, Action action)
    {
        var exception = Throws<NanovllmException>(action);
        Equal(exception.Status, status);
        True(exception.Message.Length > 0, "there is a message");
    }
}

static class Demo
{
    internal const string Primes = "list all prime numbers within 100";
    internal static readonly EngineConfig OneThread = new EngineConfig { Device = Device.Cpu, NumThreads = 1 };

    internal static Engine Open() => new Engine(Program.Model, OneThread);

    internal static string Prompt(Engine engine, string text) => engine.ApplyChatTemplate(new ChatMessage("user", text));

    internal static RequestOptions Greedy(uint maxTokens) => new RequestOptions { Temperature = 0, MaxTokens = maxTokens };

    internal static RequestOptions Endless() => new RequestOptions { Temperature = 0, MaxTokens = 100000, IgnoreEos = true };

    /// <summary>Steps an engine until it is finished, and returns the last output of each completion.</summary>
    internal static List<Output> Run(Engine engine)
    {
        var last = new List<Output>();
        while (!engine.IsFinished)
        {
            engine.Step(TimeSpan.FromMilliseconds(5));
            for (Output output = null; engine.TryPoll(ref output); output = null)
            {
                if (output.Finished) last.Add(output);
            }
        }
        return last;
    }
}

static class Layout
{
    static string Plain(string name) => name.Replace("_", "").ToLowerInvariant();

    public static void StructsAreThoseOfC()
    {
        var types = typeof(Engine).Assembly.GetTypes().Where(type => type.IsValueType).ToLookup(type => Plain(type.Name));
        Func<string, Type> struct_of = name => types[Plain(name)].Concat(types[Plain(name.Substring(6))]).First(type => !type.IsEnum);
        int checks = 0;
        foreach (Match line in Regex.Matches(File.ReadAllText(Program.Abi), @"^(SIZE|FIELD)\((\w+), (?:(\w+), )?(\d+)\)", RegexOptions.Multiline))
        {
            Type type = struct_of(line.Groups[2].Value);
            int wanted = int.Parse(line.Groups[4].Value), found;
            if (line.Groups[1].Value == "SIZE")
            {
                found = Marshal.SizeOf(type);
            }
            else
            {
                string name = Plain(line.Groups[3].Value);
                var fields = type.GetFields(BindingFlags.Instance | BindingFlags.Public | BindingFlags.NonPublic);
                found = (int)Marshal.OffsetOf(type, fields.Single(field => Plain(field.Name) == name).Name);
            }
            Expect.True(found == wanted, line.Value + " but found " + found);
            checks++;
        }
        Expect.True(checks > 100, "abi.h was read");
    }

    public static void EveryFunctionIsInTheLibrary()
    {
        foreach (MethodInfo function in typeof(Engine).Assembly.GetType("Nanovllm.Native").GetMethods(BindingFlags.Static | BindingFlags.NonPublic))
        {
            if (function.Name.StartsWith("nvllm_")) Marshal.Prelink(function);
        }
    }
}

static class Generating
{
    static readonly Engine Engine = Demo.Open();

    public static void AllWaysGiveTheSameTokens()
    {
        string prompt = Demo.Prompt(Engine, Demo.Primes);
        Output whole = Engine.Generate(prompt, Demo.Greedy(40)).Single();
        uint[] wanted = whole.TokenIds.ToArray();
        Expect.Equal(whole.FinishReason, Finish.Length);
        Expect.Equal(whole.CompletionTokens, 40);
        Expect.True(whole.TimeToFirstToken > TimeSpan.Zero, "the time is known");

        List<Output> streamed = Engine.Stream(prompt, Demo.Greedy(40)).ToList();
        Expect.Sequence(streamed.SelectMany(output => output.TokenIds.ToArray()), wanted);
        Expect.Equal(string.Concat(streamed.Select(output => output.Text)), whole.Text);
        Expect.True(streamed.Last().Finished, "the last output is the last");

        uint[] tokens = Engine.Tokenize(prompt, TokenizeFlags.AddSpecial | TokenizeFlags.ParseSpecial);
        Output fromTokens = Engine.Generate(new[] { tokens }, Demo.Greedy(40)).Single();
        Expect.Sequence(fromTokens.TokenIds.ToArray(), wanted);
        Expect.Sequence(Engine.Stream(tokens, Demo.Greedy(40)).SelectMany(output => output.TokenIds.ToArray()), wanted);
        Expect.Equal(Engine.Detokenize(wanted), whole.Text);

        var options = Demo.Greedy(40);
        options.Tag = 7;
        ulong id = Engine.AddRequest(prompt, options);
        var polled = new List<uint>();
        var text = new StringBuilder();
        Output reused = null;
        while (!Engine.IsFinished)
        {
            StepResult step = Engine.Step(TimeSpan.FromMilliseconds(4));
            Expect.True(step.ElapsedUs > 0, "a step takes time");
            while (Engine.TryPoll(ref reused))
            {
                Expect.Equal(reused.RequestId, id);
                Expect.Equal(reused.Tag, 7ul);
                polled.AddRange(reused.TokenIds.ToArray());
                text.Append(reused.TextSpan.ToString());
            }
        }
        Expect.Sequence(polled, wanted);
        Expect.Equal(text.ToString(), whole.Text);
    }

    public static void AnswersAreThoseOfC()
    {
        if (Program.GenerateInC == null) return;
        var start = new ProcessStartInfo(Program.GenerateInC, "--temperature 0 --threads 1 " + Program.Model + " \"" + Demo.Primes + "\" \"introduce yourself\"")
        {
            RedirectStandardOutput = true, RedirectStandardError = true, UseShellExecute = false,
        };
        using (Process process = Process.Start(start))
        {
            string found = process.StandardOutput.ReadToEnd();
            process.WaitForExit();
            Expect.Equal(process.ExitCode, 0);
            foreach (string question in new[] { Demo.Primes, "introduce yourself" })
            {
                Output answer = Engine.Generate(Demo.Prompt(Engine, question), new RequestOptions { Temperature = 0 }).Single();
                Expect.Equal(answer.FinishReason, Finish.Stop);
                Expect.True(found.Contains("> " + question + "\n" + answer.Text + "\n"), "C says " + found + ", and C# " + answer.Text);
            }
        }
    }

    public static void StreamsAreReadByTurnsBesideRequests()
    {
        string[] prompts = { Demo.Prompt(Engine, Demo.Primes), "Hello" };
        uint[][] alone = Engine.Generate(prompts, Demo.Greedy(12)).Select(output => output.TokenIds.ToArray()).ToArray();
        ulong other = Engine.AddRequest("Hello", Demo.Greedy(12));
        var streams = prompts.Select(prompt => Engine.Stream(prompt, Demo.Greedy(12)).GetEnumerator()).ToArray();
        var found = prompts.Select(prompt => new List<uint>()).ToArray();
        for (bool more = true; more;)
        {
            more = false;
            for (int i = 0; i < streams.Length; i++)
            {
                if (!streams[i].MoveNext()) continue;
                found[i].AddRange(streams[i].Current.TokenIds.ToArray());
                more = true;
            }
        }
        for (int i = 0; i < streams.Length; i++) Expect.Sequence(found[i], alone[i]);
        Expect.True(!Engine.IsFinished, "outputs of the other request are waiting");
        var polled = new List<uint>();
        Output output_ = null;
        while (Engine.TryPoll(ref output_))
        {
            Expect.Equal(output_.RequestId, other);
            polled.AddRange(output_.TokenIds.ToArray());
        }
        Expect.Sequence(polled, alone[1]);
        Expect.True(Engine.IsFinished, "all was polled");
    }

    public static void LeavingAStreamCancels()
    {
        ulong other = Engine.AddRequest("Hello", Demo.Greedy(9));
        for (int i = 0; i < 3; i++)
        {
            foreach (Output output in Engine.Stream("Hello", new RequestOptions { N = 2, MaxTokens = 100000, IgnoreEos = true })) break;
        }
        Expect.Equal(Demo.Run(Engine).Single().RequestId, other);
        foreach (Output output in Engine.Stream("Hello", Demo.Endless())) break;
        int steps = 0;
        for (; !Engine.IsFinished && steps < 100; steps++) Expect.Equal(Engine.Step().NumOutputs, 0u);
        Expect.True(steps < 100, "a cancelled output waits for nobody");
        foreach (Output output in Engine.Stream("Hello", Demo.Endless())) break;
        int heard = 0;
        Engine.SetOutputReceiver(output => heard++);
        for (steps = 0; !Engine.IsFinished && steps < 100; steps++) Engine.Step();
        Engine.SetOutputReceiver(null);
        Expect.True(heard == 0 && steps < 100, "nor for a receiver");
        IEnumerator<Output> read = Engine.Stream("Hello", Demo.Greedy(3)).GetEnumerator();
        read.MoveNext();
        Expect.Throws<InvalidOperationException>(() => Engine.SetOutputReceiver(output => heard++));
        while (read.MoveNext()) ;
        ulong id = Engine.AddRequest("Hello", Demo.Endless());
        Engine.Step();
        Expect.True(Engine.Cancel(id), "it ran");
        Expect.Equal(Demo.Run(Engine).Single().FinishReason, Finish.Cancelled);
        Expect.True(!Engine.Cancel(id), "it has ended");
    }

    public static void Options()
    {
        Output[] two = Engine.Generate(new[] { "Hello", "Hello" }, new[] { Demo.Greedy(2), Demo.Greedy(3) });
        Expect.Sequence(two.Select(output => output.CompletionTokens), new[] { 2, 3 });
        uint first = two[0].TokenIds[0];
        var options = Demo.Greedy(1);
        options.LogitBias = new Dictionary<uint, float> { { first, float.NegativeInfinity } };
        Expect.True(Engine.Generate("Hello", options)[0].TokenIds[0] != first, "the bias excludes the token");
        options = Demo.Greedy(3);
        options.StopTokens = new[] { first };
        Expect.Equal(Engine.Generate("Hello", options)[0].FinishReason, Finish.Stop);
        string text = Engine.Generate(Demo.Prompt(Engine, Demo.Primes), Demo.Greedy(40))[0].Text;
        options = Demo.Greedy(40);
        options.Stop = new[] { "never seen", "13" };
        Expect.Equal(Engine.Generate(Demo.Prompt(Engine, Demo.Primes), options)[0].Text, text.Substring(0, text.IndexOf("13")));
        const string repeating = "one: two, one:";
        uint[] tokens = Engine.Tokenize(repeating);
        uint wanted = tokens[Array.IndexOf(tokens, tokens.Last()) + 1];
        foreach (string[] breakers in new[] { null, new string[0], new[] { "x" }, new[] { "x", ":" } })
        {
            options = Demo.Greedy(1);
            options.LogitBias = new Dictionary<uint, float> { { wanted, 50f } };
            options.DryMultiplier = 1000f;
            options.DryAllowedLength = 1;
            options.DrySequenceBreakers = breakers;
            bool isRepeated = Engine.Generate(repeating, options)[0].TokenIds[0] == wanted;
            Expect.Equal(isRepeated, breakers == null || breakers.Length == 2);
        }
        options = Demo.Greedy(2);
        options.NumLogprobs = 3;
        options.NumPromptLogprobs = 1;
        Output told = Engine.Generate("Hello", options)[0];
        Expect.Sequence(new[] { told.Logprobs.Length, told.TopTokens.Length, told.TopLogprobs.Length, told.PromptLogprobs.Length },
            new[] { 2, 6, 6, told.PromptTokens - 1 });
        Expect.Equal(told.TopTokens[0], told.TokenIds[0]);
        options = Demo.Greedy(8);
        options.Structure = "[0-9]{3}";
        options.StructureKind = StructureKind.Regex;
        Expect.True(Regex.IsMatch(Engine.Generate("Hello", options)[0].Text, "^[0-9]{3}$"), "three digits");
        Output pooled = Engine.Generate("Hello", new RequestOptions { Pooling = Pooling.Mean })[0];
        Expect.Equal(pooled.Embedding.Length, (int)Engine.GetModelInfo().HiddenSize);
        Expect.Status(Status.InvalidArgument, () => Engine.ExpertTokens(0));
        var scoring = new RequestOptions { ScoreTokens = new uint[] { 40, 41, 7 } };
        Output[] scored = Engine.Score(new[] { "an iron sword", "a loaf of bread", "an iron sword" }, null, scoring);
        foreach (Output one in scored)
            Expect.True(one.Scores.Length == 3 && one.TokenIds.Length == 0 && Math.Abs(one.Scores.ToArray().Sum() - 1) < 1e-5, "probabilities of three tokens");
        Expect.Sequence(scored[0].Scores.ToArray(), scored[2].Scores.ToArray());
        Expect.True(!scored[0].Scores.ToArray().SequenceEqual(scored[1].Scores.ToArray()), "scores depend on the text");
        Expect.Status(Status.InvalidArgument, () => Engine.AddRequest("Hello", new RequestOptions { ScoreTokens = new uint[] { 4, 5, 4 } }));
        Expect.Status(Status.Unsupported, () => Engine.Score(new[] { "an iron sword" }));
        Output[] several = Engine.Generate("Hello", new RequestOptions { N = 3, MaxTokens = 2, Temperature = 1, Seed = 5 });
        Expect.Sequence(several.Select(output => output.Index), new[] { 0, 1, 2 });
        Expect.True(Math.Abs(Engine.GetDefaultOptions().TopP.Value - 0.95f) < 1e-6, "the file of the model is read");
        Expect.Sequence(Engine.Generate("Hello", Engine.GetDefaultOptions().WithSeed(3)).Select(o => o.Text), Engine.Generate("Hello", new RequestOptions { Seed = 3, MaxTokens = 8 }).Select(o => o.Text));
    }

    static RequestOptions WithSeed(this RequestOptions options, ulong seed)
    {
        options.Seed = seed;
        options.MaxTokens = 8;
        return options;
    }

    public static void WhatIsWrongIsSaid()
    {
        Expect.Status(Status.InvalidArgument, () => Engine.AddRequest("Hello", new RequestOptions { TopP = 3 }));
        Expect.True(Expect.Throws<NanovllmException>(() => Engine.AddRequest("Hello", new RequestOptions { TopP = 3 })).Message.Contains("top_p"), "it is named");
        Expect.Status(Status.InvalidArgument, () => Engine.AddRequest(new[] { 1u << 31 }));
        Expect.Status(Status.InvalidArgument, () => Engine.AddRequest(new uint[0]));
        Expect.Throws<ArgumentException>(() => Engine.AddRequest("Hello", new RequestOptions { Stop = new[] { "a\0b" } }));
        Expect.Throws<EncoderFallbackException>(() => Engine.AddRequest("half a pair: \ud800"));
        Expect.Throws<ArgumentNullException>(() => Engine.Stream((string)null));
        Expect.Equal(Expect.Throws<ArgumentNullException>(() => Engine.AddRequest("Hello", new RequestOptions { Stop = new[] { "a", null } })).ParamName, "Stop[1]");
        Expect.Status(Status.NotFound, () => Engine.Fork(1ul << 60));
        Expect.Equal(Engine.Generate(new[] { new uint[0], new uint[] { 1 << 30 } }, Demo.Greedy(2))[1].Error.Status, Status.InvalidArgument);
        Expect.Equal(Engine.Generate(new string[0]).Length, 0);
    }

    public static void WhatACallbackThrowsIsThrownAgain()
    {
        Expect.Throws<TimeoutException>(() => Engine.Generate(new[] { "Hello", "Hello" }, Demo.Endless(), progress => throw new TimeoutException()));
        int calls = 0;
        Engine.Generate(new[] { "Hello" }, Demo.Greedy(3), progress => { calls++; Expect.True(progress.Total == 1, "one completion"); });
        Expect.True(calls > 0, "progress was reported");
    }

    public static void AReceiverGetsOutputs()
    {
        uint[] wanted = Engine.Generate("Hello", Demo.Greedy(9))[0].TokenIds.ToArray();
        var found = new List<uint>();
        Engine.SetOutputReceiver(output => found.AddRange(output.TokenIds.ToArray()));
        Engine.AddRequest("Hello", Demo.Greedy(9));
        while (!Engine.IsFinished)
        {
            Engine.Step();
            GC.Collect();
        }
        Expect.Sequence(found, wanted);
        Expect.Throws<InvalidOperationException>(() => Engine.Stream("Hello").Any());
        Finish reason = Finish.None;
        Engine.SetOutputReceiver(output => { reason = output.FinishReason; if (reason == Finish.None) throw new TimeoutException(); });
        Engine.AddRequest("Hello", Demo.Endless());
        Expect.Throws<TimeoutException>(() => { while (!Engine.IsFinished) Engine.Step(); });
        while (!Engine.IsFinished) Engine.Step();
        Expect.Equal(reason, Finish.Cancelled);
        Engine.SetOutputReceiver(null);
        Expect.Sequence(Engine.Stream("Hello", Demo.Greedy(9)).SelectMany(output => output.TokenIds.ToArray()), wanted);
    }

    public static void PollingAllocatesNothing()
    {
        Output output = null;
        Engine.AddRequest("Hello", Demo.Endless());
        Action frame = () =>
        {
            Engine.Step();
            while (Engine.TryPoll(ref output) && output.TextSpan.Length > 1000) ;
        };
        for (int i = 0; i < 50; i++) frame();
        long before = GC.GetAllocatedBytesForCurrentThread();
        for (int i = 0; i < 400; i++) frame();
        long allocated = GC.GetAllocatedBytesForCurrentThread() - before;
        Expect.True(Engine.Cancel(output.RequestId), "it ran in every frame");
        Demo.Run(Engine);
        Expect.Equal(allocated, 0L);
    }

    public static void Text()
    {
        foreach (string text in new[] { "", "plain", "Zürich, 東京, \ud83d\ude00", "a\0b", new string('x', 20000) })
            Expect.Equal(Engine.Detokenize(Engine.Tokenize(text, 0)), text);
        string prompt = Engine.ApplyChatTemplate(new ChatMessage("system", "Say \"yes\"\n\\ \u0001"), new ChatMessage("user", "東京?"));
        Expect.True(prompt.Contains("Say \"yes\"\n\\ \u0001") && prompt.Contains("東京?"), prompt);
        string whole = Engine.ApplyChatTemplate("[{\"role\":\"user\",\"content\":\"Hi\"}]");
        Expect.True(whole.StartsWith(Engine.ApplyChatTemplate("[{\"role\":\"user\",\"content\":\"Hi\"}]", "{\"add_generation_prompt\": false}")), whole);
        Expect.Status(Status.InvalidArgument, () => Engine.ApplyChatTemplate("not JSON"));
    }

    public static void PrefixesAndForks()
    {
        uint[] tokens = Engine.Tokenize(string.Concat(Enumerable.Repeat(Demo.Prompt(Engine, Demo.Primes), 8)), TokenizeFlags.ParseSpecial);
        Engine.Generate(new[] { tokens }, Demo.Greedy(1));
        byte[] saved = Engine.SavePrefix(tokens, out int covered);
        Expect.True(covered > 0, "blocks were saved");
        Engine.ResetPrefixCache();
        Expect.True(Engine.Trim() >= 0, "memory is given back");
        Expect.Equal(Engine.Trim(), 0L);
        Expect.Equal(Engine.RestorePrefix(saved), covered);
        Expect.True(Engine.Generate(new[] { tokens }, Demo.Greedy(1))[0].CachedTokens >= covered, "the prefix was found");
        Expect.Status(Status.InvalidArgument, () => Engine.RestorePrefix(saved.AsSpan(0, saved.Length - 1)));
        Expect.Status(Status.NotFound, () => Engine.SavePrefix(new uint[] { 1, 2, 3 }, out int none));
        ulong id = Engine.AddRequest("Hello", Demo.Endless());
        for (int i = 0; i < 4; i++) Engine.Step();
        ulong fork = Engine.Fork(id, 0, Demo.Greedy(3));
        Engine.Cancel(id);
        Expect.True(Demo.Run(Engine).Select(output => output.RequestId).OrderBy(i => i).SequenceEqual(new[] { id, fork }), "both ended");
        Expect.True(!Engine.ReleasePrefix(id), "nothing is pinned");
    }

    public static void Statistics()
    {
        Expect.True(Engine.GetStats().KvBlocksTotal > 0, "there is a KV cache");
        Expect.Equal(Engine.GetModelInfo().Device, Device.Cpu);
        Expect.True(Engine.GetMetricsText().Contains("nanovllm_"), "metrics have their prefix");
        Expect.True(Library.BuildInfo.Contains("cpu") && Regex.IsMatch(Library.Version, @"^\d+\.\d+\.\d+$"), Library.Version);
    }
}
