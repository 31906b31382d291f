// A character who talks, stepped inside Unity's own loop. Put this component on any object of a scene: it draws its bubble and a line to type in
// by IMGUI, so that nothing else has to be wired. Another interface calls Say and reads Answer.

using System;
using System.IO;
using System.Threading.Tasks;
using Nanovllm;
using UnityEngine;

public sealed class Character : MonoBehaviour
{
    [Tooltip("A model folder or a GGUF file under StreamingAssets, or an absolute path.")]
    public string model = "model";

    [TextArea]
    public string system = "You are Brenna, the blacksmith.";

    [Tooltip("Milliseconds of each frame that the engine may use.")]
    public float stepBudgetMs = 4;

    public int maxTokens = 120;

    Task<Engine> opening;
    Engine engine;
    Chat chat;
    Output output;
    string line = "";
    Rect bubble = new Rect(40, 40, 560, 160), input = new Rect(40, 220, 460, 30), button = new Rect(510, 220, 90, 30);

    /// <summary>What is in the bubble: what there is of the answer, or why there is none.</summary>
    public string Answer { get; private set; } = "";

    /// <summary>Whether the model is loaded and nothing is being answered.</summary>
    public bool IsListening => engine != null && !chat.IsAnswering;

    void OnEnable()
    {
        // Reading a model takes seconds, so another thread opens it.
        string path = Path.Combine(Application.streamingAssetsPath, model);
        Answer = "…";
        opening = Task.Run(() => new Engine(path, new EngineConfig { MaxNumSeqs = 4 }));
    }

    void Update()
    {
        try
        {
            if (engine == null && !Open()) return;
            engine.Step(TimeSpan.FromMilliseconds(stepBudgetMs));
            while (engine.TryPoll(ref output))
            {
                // A string per frame in which the answer grows; TextMeshPro's SetCharArray takes chat.AnswerSpan without one.
                if (chat.Take(output)) Answer = output.Error == null ? chat.Answer : output.Error.Message;
            }
        }
        catch (Exception exception)
        {
            Answer = exception.Message;
            Debug.LogException(exception, this);
            enabled = false;
        }
    }

    bool Open()
    {
        if (!opening.IsCompleted) return false;
        engine = opening.GetAwaiter().GetResult();
        chat = new Chat(engine, system);
        Answer = "Well met.";
        return true;
    }

    /// <summary>Says something to the character. Who speaks into an answer ends it.</summary>
    public void Say(string text)
    {
        if (engine == null || string.IsNullOrWhiteSpace(text)) return;
        if (chat.IsAnswering)
        {
            chat.Cancel();
            while (chat.IsAnswering)
            {
                engine.Step();
                while (engine.TryPoll(ref output)) chat.Take(output);
            }
        }
        chat.Options = new RequestOptions { MaxTokens = (uint)maxTokens };
        chat.Begin(text);
        Answer = "…";
    }

    void OnGUI()
    {
        GUI.Box(bubble, Answer);
        line = GUI.TextField(input, line);
        if (!GUI.Button(button, "Say")) return;
        try
        {
            Say(line);
            line = "";
        }
        catch (NanovllmException exception)
        {
            Answer = exception.Message;
        }
    }

    void OnDisable()
    {
        engine?.Dispose();
        // A model that is still being read is freed when it is there.
        if (engine == null) opening?.ContinueWith(opened => opened.Result.Dispose(), TaskContinuationOptions.OnlyOnRanToCompletion);
        engine = null;
        chat = null;
    }
}
