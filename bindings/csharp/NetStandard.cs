// Makes an assembly of Mono's compiler one for .NET Standard 2.1, and writes it as another file.
//   NetStandard.exe ASSEMBLY NETSTANDARD_DLL NEW_ASSEMBLY
//
// Mono's compiler refers to its own mscorlib and System.Core. The new file refers to netstandard, of which NETSTANDARD_DLL lists the types: one that
// the assembly uses and .NET Standard lacks is an error that names it.

using System;
using System.Collections.Generic;
using System.Linq;
using Mono.Cecil;

static class NetStandard
{
    static int Main(string[] arguments)
    {
        ModuleDefinition module = ModuleDefinition.ReadModule(arguments[0]), standard = ModuleDefinition.ReadModule(arguments[1]);
        var types = new HashSet<string>(standard.ExportedTypes.Select(type => type.FullName).Concat(standard.Types.Select(type => type.FullName)));
        string[] lacking = module.GetTypeReferences().Select(Outermost).Where(type => !types.Contains(type)).Distinct().ToArray();
        foreach (string type in lacking) Console.Error.WriteLine(arguments[0] + " uses " + type + ", which .NET Standard 2.1 does not have");
        if (lacking.Length > 0) return 1;
        // Looked up by its name, and kept: otherwise writing would add it again.
        IMetadataScope core = module.TypeSystem.Corlib;
        foreach (AssemblyNameReference reference in module.AssemblyReferences)
        {
            reference.Name = standard.Assembly.Name.Name;
            reference.Version = standard.Assembly.Name.Version;
            reference.PublicKeyToken = standard.Assembly.Name.PublicKeyToken;
        }
        module.Write(arguments[2]);
        return core.Name == standard.Assembly.Name.Name ? 0 : 1;
    }

    static string Outermost(TypeReference type) => type.DeclaringType == null ? type.FullName : Outermost(type.DeclaringType);
}
