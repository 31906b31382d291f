// Tools in requests, and answers that become content, reasoning and tool calls.

using System;
using System.Collections.Generic;
using System.Linq;
using System.Text.RegularExpressions;
using System.Threading.Tasks;
using Nanovllm;

static class Answers
{
    const string Tools = "[{\"type\": \"function\", \"function\": {\"name\": \"give_item\", \"description\": \"Gives an item.\", \"parameters\": "
        + "{\"type\": \"object\", \"properties\": {\"item\": {\"enum\": [\"sword\", \"rope\"]}, \"count\": {\"type\": \"integer\", \"minimum\": 1, \"maximum\": 9}}, "
        + "\"required\": [\"item\", \"count\"], \"additionalProperties\": false}}}]";
    const string NoThinking = "{\"enable_thinking\": false}";
    const string Call = "<tool_call>\n{\"name\": \"give_item\", \"arguments\": {\"item\": \"rope\", \"count\": 2}}\n</tool_call>";

    static readonly Engine Engine = Demo.Open();
    static readonly ChatMessage[] Question = { new ChatMessage("user", "a rope, please") };

    static RequestOptions Required() => new RequestOptions
    {
        Tools = Tools, ToolChoice = ToolChoice.Required, ParallelToolCalls = false, KeepSpecialTokens = true, MaxTokens = 200, Temperature = 8, Seed = 3,
    };

    static void IsOfTheShop(ToolCall call)
    {
        Expect.Equal(call.Name, "give_item");
        Expect.Equal(call.Id, null);
        Expect.True(Regex.IsMatch(call.Arguments, "^{\"item\":\"(sword|rope)\",\"count\":[1-9]}$"), call.Arguments);
    }

    // Events of one kind in a row, joined.
    static List<string> Joined(IEnumerable<AnswerEvent> events)
    {
        var joined = new List<string>();
        string last = null;
        foreach (AnswerEvent one in events)
        {
            string kind = one.Kind + " " + one.CallIndex + ": ";
            if (kind == last) joined[joined.Count - 1] += one.Text;
            else joined.Add(kind + one.Text);
            last = kind;
        }
        return joined;
    }

    public static void EventsDoNotDependOnPieces()
    {
        string answer = "Hm, ¥.</think>Hier, für dich 😀:\n" + Call + "\n" + Call;
        foreach (int size in new[] { 1, 3, 1000 })
        {
            using (AnswerParser parser = Engine.CreateAnswerParser("<|im_start|>assistant\n<think>\n", Tools))
            {
                var events = new List<AnswerEvent>();
                for (int at = 0, end; at < answer.Length; at = end)
                {
                    end = Math.Min(at + size, answer.Length);
                    // A piece has whole characters.
                    if (char.IsHighSurrogate(answer[end - 1])) end++;
                    events.AddRange(parser.Feed(answer.AsSpan(at, end - at)));
                }
                events.AddRange(parser.Finish());
                const string arguments = "{\"item\":\"rope\",\"count\":2}";
                Expect.Sequence(Joined(events), new[]
                {
                    "Reasoning 0: Hm, ¥.", "Content 0: Hier, für dich 😀:", "ToolCallBegin 0: give_item", "ToolCallArguments 0: " + arguments, "ToolCallEnd 0: ",
                    "ToolCallBegin 1: give_item", "ToolCallArguments 1: " + arguments, "ToolCallEnd 1: ",
                });
                Expect.Equal(parser.Content, "Hier, für dich 😀:");
                Expect.Equal(parser.ReasoningContent, "Hm, ¥.");
                Expect.Sequence(parser.ToolCalls.Select(call => call.Name + call.Arguments), new[] { "give_item" + arguments, "give_item" + arguments });
                const string callJson = "{\"type\":\"function\",\"function\":{\"name\":\"give_item\",\"arguments\":" + arguments + "}}";
                Expect.Equal(parser.GetMessageJson(), "{\"role\":\"assistant\",\"content\":\"Hier, für dich 😀:\",\"reasoning_content\":\"Hm, ¥.\",\"tool_calls\":["
                    + callJson + "," + callJson + "]}");
            }
        }
    }

    public static void ACallThatBreaksIsContent()
    {
        using (AnswerParser parser = Engine.CreateAnswerParser(tools: Tools))
        {
            AnswerEvent[] events = parser.Feed("Yes.<tool_call>\n{\"name\": \"give_item\", \"arguments\": {\"count\": ]").Concat(parser.Finish()).ToArray();
            Expect.True(events.Single(one => one.Kind == AnswerEventKind.ToolCallBroken).Text.Length > 0, "it is said why");
            Expect.Equal(parser.ToolCalls.Length, 0);
            Expect.True(parser.Content.StartsWith("Yes.<tool_call>"), parser.Content);
            Expect.True(parser.GetMessageJson().Contains("Yes.<tool_call>"), "the JSON has it too");
        }
    }

    public static void AMessageIsThereBeforeTheEnd()
    {
        string text = string.Concat(Enumerable.Repeat("東京 \"", 5000));
        using (AnswerParser parser = Engine.CreateAnswerParser())
        {
            parser.Feed(text + "<tool_call>\n{\"name\": \"give_");
            Expect.Equal(parser.Content, text);
            Expect.True(parser.GetMessageJson().Length > text.Length, "a message may be long");
        }
    }

    public static void AParserOutlivesItsEngine()
    {
        AnswerParser parser;
        using (Engine engine = Demo.Open()) parser = engine.CreateAnswerParser(tools: Tools);
        parser.Feed(Call);
        parser.Finish();
        Expect.Equal(parser.Finish().Length, 0);
        IsOfTheShop(parser.ToolCalls.Single());
        Expect.True(Expect.Throws<NanovllmException>(() => parser.Feed("more")).Message.Contains("has ended the answer"), "it has ended");
        parser.Dispose();
        parser.Dispose();
        Expect.Equal(parser.ToolCalls.Length, 1);
        Expect.Throws<ObjectDisposedException>(() => parser.Feed("more"));
        Expect.Throws<ObjectDisposedException>(() => parser.Finish());
        Expect.Throws<ObjectDisposedException>(() => parser.GetMessageJson());
    }

    public static void ForgottenParsersAreFreed()
    {
        for (int i = 0; i < 200; i++) Engine.CreateAnswerParser(tools: Tools).Feed("forgotten");
        GC.Collect();
        GC.WaitForPendingFinalizers();
    }

    public static void ManyThreadsFeedOneParser()
    {
        using (AnswerParser parser = Engine.CreateAnswerParser())
        {
            Parallel.For(0, 400, i => parser.Feed("x"));
            parser.Finish();
            Expect.Equal(parser.Content, new string('x', 400));
        }
    }

    public static void RequiredCallsAreValidWhateverTheModelThinks()
    {
        RequestOptions options = Required();
        options.N = 4;
        Engine.AddChat(Question, options, NoThinking);
        var parsers = Enumerable.Range(0, 4).Select(i => Engine.CreateAnswerParser(tools: Tools)).ToArray();
        Output output = null;
        while (!Engine.IsFinished)
        {
            Engine.Step(TimeSpan.FromMilliseconds(4));
            while (Engine.TryPoll(ref output))
            {
                parsers[output.Index].Feed(output.TextSpan);
                if (output.Finished) Expect.Equal(output.FinishReason, Finish.Stop);
            }
        }
        foreach (AnswerParser parser in parsers)
        {
            parser.Finish();
            IsOfTheShop(parser.ToolCalls.Single());
            parser.Dispose();
        }
    }

    public static void ACallIsAnsweredAndTheModelGoesOn()
    {
        RequestOptions options = Required();
        options.ToolChoice = ToolChoice.Named;
        options.ToolName = "give_item";
        var parser = Engine.CreateAnswerParser(tools: Tools);
        foreach (Output output in Engine.StreamChat(Question, options, NoThinking)) parser.Feed(output.TextSpan);
        parser.Finish();
        string call = "{\"name\": \"give_item\", \"arguments\": " + Regex.Replace(parser.ToolCalls.Single().Arguments, "[:,]", "$0 ") + "}";
        string conversation = "[" + Question[0].ToJson() + "," + parser.GetMessageJson() + "," + new ChatMessage("tool", "\"done\"").ToJson() + "]";
        string prompt = Engine.ApplyChatTemplate(conversation, "{\"tools\": " + Tools + "}");
        Expect.True(prompt.Contains("# Tools") && prompt.Contains("\"done\""), prompt);
        Expect.True(prompt.Replace(" ", "").Contains(call.Replace(" ", "")), "no " + call + " in " + prompt);
        Expect.Equal(Engine.Generate(prompt, Demo.Greedy(1))[0].CompletionTokens, 1);
    }

    public static async Task TheTemplateGetsToolsHoweverAConversationIsAsked()
    {
        string tools = "{\"tools\": " + Tools + "}";
        int with = Engine.Tokenize(Engine.ApplyChatTemplate("[" + Question[0].ToJson() + "]", tools), TokenizeFlags.ParseSpecial).Length;
        int without = Engine.Tokenize(Engine.ApplyChatTemplate(Question), TokenizeFlags.ParseSpecial).Length;
        foreach (ToolChoice choice in new[] { ToolChoice.Auto, ToolChoice.None })
        {
            int wanted = choice == ToolChoice.None ? without : with;
            var options = new RequestOptions { Tools = Tools, ToolChoice = choice, Temperature = 0, MaxTokens = 2 };
            var chat = new Chat(Engine) { Options = options };
            Expect.Equal(chat.Send(Question[0].Content).Last().PromptTokens, wanted);
            chat.Reset();
            chat.Begin(Question[0].Content);
            Output last = null;
            while (!Engine.IsFinished)
            {
                Engine.Step();
                while (Engine.TryPoll(ref last)) chat.Take(last);
            }
            Expect.Equal(last.PromptTokens, wanted);
            using (var engine = new AsyncEngine(Demo.Open()))
            {
                var served = new Chat(engine.Engine) { Options = options };
                IAsyncEnumerator<Output> outputs = served.SendAsync(engine, Question[0].Content).GetAsyncEnumerator();
                while (await outputs.MoveNextAsync()) Expect.Equal(outputs.Current.PromptTokens, wanted);
                await outputs.DisposeAsync();
            }
        }
    }

    public static void ReasoningIsBounded()
    {
        const string prompt = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n<think>\n";
        uint end = Engine.Tokenize("</think>", TokenizeFlags.ParseSpecial).Single();
        var options = new RequestOptions
        {
            Temperature = 0, MaxTokens = 12, IgnoreEos = true, LogitBias = new Dictionary<uint, float> { { end, -1e9f } }, MaxThinkingTokens = 5,
        };
        Output bounded = Engine.Generate(prompt, options)[0];
        Expect.Equal(bounded.ReasoningTokens, 5);
        Expect.Equal(bounded.TokenIds[5], end);
        options.MaxThinkingTokens = null;
        Expect.Equal(Engine.Generate(prompt, options)[0].ReasoningTokens, 0);
        options.MaxThinkingTokens = 3;
        Expect.Equal(Engine.Stream(prompt, options).Last().ReasoningTokens, 3);
    }

    public static void WhatIsWrongIsSaid()
    {
        Action<string, RequestOptions> refused = (word, options) =>
        {
            string message = Expect.Throws<NanovllmException>(() => Engine.AddChat(Question, options)).Message;
            Expect.True(message.Contains(word), "no " + word + " in " + message);
        };
        refused("tools: it must be an array", new RequestOptions { Tools = "{}" });
        refused("tool_choice is 2", new RequestOptions { ToolChoice = ToolChoice.Required });
        refused("tool_name is NULL", new RequestOptions { Tools = Tools, ToolChoice = ToolChoice.Named });
        refused("tool_name is \"take\"", new RequestOptions { Tools = Tools, ToolChoice = ToolChoice.Named, ToolName = "take" });
        Expect.Throws<ArgumentException>(() => Engine.AddRequest("Hello", new RequestOptions { Tools = "[]\0" }));
        Expect.Throws<ArgumentException>(() => Engine.CreateAnswerParser(tools: "[]\0"));
        Expect.Status(Status.InvalidArgument, () => Engine.CreateAnswerParser(tools: "{"));
        Expect.Throws<System.Text.EncoderFallbackException>(() => Engine.CreateAnswerParser("half a pair: \ud800"));
        using (AnswerParser parser = Engine.CreateAnswerParser())
        {
            Expect.Throws<System.Text.EncoderFallbackException>(() => parser.Feed("half a pair: \ud800"));
            // None of that counts as text.
            parser.Feed("yes");
            parser.Feed("");
            parser.Finish();
            Expect.Equal(parser.GetMessageJson(), "{\"role\":\"assistant\",\"content\":\"yes\"}");
        }
    }
}
